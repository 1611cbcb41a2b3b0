"""Sinks: where the matches of a micro-batch go, once.

Spark may hand the same batch over again. A sink is exactly-once when writing batch n a second time leaves it as it was:

| sink      | how                                                                   | guarantee                           |
|-----------|-----------------------------------------------------------------------|-------------------------------------|
| `Parquet` | an attempt beside, one manifest per batch, then moved into sight      | exactly once; refuses other streams |
| `Delta`   | the table takes a transaction number once per stream                  | exactly once                        |
| `Iceberg` | the snapshot of a batch carries its key                               | exactly once, while snapshots last  |
| `Jdbc`    | rows and the key of the batch go into the database in one transaction | exactly once                        |
| `Broker`  | pieces with keys of the batch; the broker takes a key once            | exactly once, while it has the key  |
| `Kafka`   | keys name stream, batch and row, equal in every attempt               | at least once, repeats by their key |
| `Foreach` | your function, told the batch and where it comes from                 | what your function makes of it      |

Spark writes, from a DataFrame. `Parquet` may have the tasks that match write instead, see `drafts`.

Batch numbers of two streams are the same, so a sink that looked at numbers alone would take the batches of one stream for
repetitions of the other's, and drop them. `Batch` says which stream and which source offsets a batch comes from.
"""
