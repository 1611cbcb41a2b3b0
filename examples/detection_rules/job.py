"""Detection rules that live in a table, matched against a stream of JSON events: `python job.py FOLDER`."""

import sys

from pyspark.sql import DataFrame, SparkSession

from wherecast import spark as ws

EVENTS = """time timestamp, host string, user struct<name: string, domain: string>,
    process struct<name: string, command: string>, network struct<port: int, bytes: bigint>"""


def start(spark: SparkSession, folder: str) -> tuple[ws.TableQuery, ws.MatchQuery]:
    """Follow the table of rules and match the events; matches have the severity and the owner of their rule."""

    def rules() -> DataFrame:
        return spark.read.parquet(f"{folder}/rules")

    events = spark.readStream.schema(EVENTS).json(f"{folder}/events")
    index = ws.Index(f"{folder}/index")
    if not index.versions():
        ws.Index.build(rules(), index.url, schema=events, id="rule_id", filter="condition")
    follower = index.follow(rules, trigger={"processingTime": "5 seconds"})
    query = index.stream(
        events,
        ws.Parquet(f"{folder}/alerts"),
        f"{folder}/checkpoint",
        columns=["severity", "owner"],
        names={"subscription": "rule_id"},
    )
    return follower, query


if __name__ == "__main__":
    session = ws.create_session("detection-rules")
    start(session, sys.argv[1])[1].awaitTermination()
