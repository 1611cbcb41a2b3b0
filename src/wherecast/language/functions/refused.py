"""Spark's functions that a filter may not call, and why.

With the table of functions these are all of Spark's built-in functions; a test compares them with Spark's own list.
"""

from __future__ import annotations


class Refusals:
    """Functions that are refused for one reason. `kind` chooses the words of the error."""

    __slots__ = ("kind", "names", "why")

    def __init__(self, kind: str, why: str, names: str) -> None:
        self.kind = kind
        self.why = why
        self.names = tuple(names.split())


REFUSED = (
    Refusals(
        "aggregate",
        "an aggregate: a filter sees one event",
        """
        any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
        approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
        bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if
        count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
        hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
        kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max
        max_by mean measure median min min_by mode percentile percentile_approx percentile_cont percentile_disc
        regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
        schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum
        theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
        tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
        tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
        """,
    ),
    Refusals(
        "window",
        "a window function: a filter sees one event",
        """
        counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number session_window
        window window_time
        """,
    ),
    Refusals(
        "rows",
        "makes several rows of one: a filter sees one event",
        """
        collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer
        python_worker_logs range sql_keywords stack variant_explode variant_explode_outer
        """,
    ),
    Refusals(
        "changing",
        "changes by itself: a standing filter may depend on nothing but its event",
        """
        curdate current_date current_time current_timestamp input_file_block_length input_file_block_start
        input_file_name java_method localtime localtimestamp monotonically_increasing_id now rand randn random
        randstr reflect shuffle spark_partition_id try_reflect uniform uuid
        """,
    ),
    Refusals(
        "session",
        "depends on the session, or ends the query: a standing filter may depend on nothing but its event",
        """
        assert_true current_catalog current_database current_path current_schema current_timezone current_user
        raise_error session_user user version
        """,
    ),
    Refusals(
        "later",
        "not there yet: hashes",
        """
        hash xxhash64
        """,
    ),
    Refusals(
        "later",
        "not there yet: texts",
        """
        collate collation elt format_number format_string from_base32 is_valid_utf8
        jaro_winkler_similarity levenshtein make_valid_utf8 mask overlay printf quote
        regexp_extract_all sentences soundex to_base32 to_binary to_char
        to_number to_varchar try_to_binary try_to_number try_validate_utf8 unbase64 validate_utf8
        """,
    ),
    Refusals(
        "later",
        "not there yet: dates and times",
        """
        convert_timezone date_part datepart from_utc_timestamp
        make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
        make_ym_interval months_between time_bucket time_diff time_from_micros time_from_millis
        time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp_nanos to_time
        to_utc_timestamp try_make_interval try_make_timestamp
        try_make_timestamp_ltz try_make_timestamp_ntz try_to_time unix_nanos
        """,
    ),
    Refusals(
        "later",
        "not there yet: numbers",
        """
        acosh asinh atanh conv e hypot pi width_bucket
        """,
    ),
    Refusals(
        "machine",
        "Java leaves the last digit to the processor: two machines may answer differently",
        """
        cos cot csc sec sin tan
        """,
    ),
    Refusals(
        "later",
        "not there yet: conversions",
        """
        time
        """,
    ),
    Refusals(
        "later",
        "not there yet: arrays",
        """
        array_append array_insert array_prepend
        array_repeat arrays_zip flatten sequence
        """,
    ),
    Refusals(
        "later",
        "not there yet: maps",
        """
        map map_concat map_entries map_from_arrays map_from_entries str_to_map
        """,
    ),
    Refusals(
        "later",
        "not there yet: structs",
        """
        named_struct struct
        """,
    ),
    Refusals(
        "lambda",
        "an operator here: see `exists(a, x -> c)` above",
        """
        exists forall
        """,
    ),
    Refusals(
        "later",
        "not there yet: lambdas",
        """
        aggregate array_sort filter map_filter map_zip_with reduce transform transform_keys
        transform_values zip_with
        """,
    ),
    Refusals(
        "later",
        "not there yet: JSON",
        """
        from_json get_json_object json_array_length json_object_keys schema_of_json to_json
        """,
    ),
    Refusals(
        "later",
        "not there yet: CSV",
        """
        from_csv schema_of_csv to_csv
        """,
    ),
    Refusals(
        "later",
        "not there yet: XML",
        """
        from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
        xpath_number xpath_short xpath_string
        """,
    ),
    Refusals(
        "later",
        "not there yet: variants",
        """
        is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object try_parse_json
        try_variant_array_append try_variant_get try_variant_insert try_variant_set variant_array_append
        variant_delete variant_get variant_insert variant_set variant_strip_nulls
        """,
    ),
    Refusals(
        "later",
        "not there yet: URLs",
        """
        parse_url try_parse_url try_url_decode url_decode url_encode
        """,
    ),
    Refusals(
        "later",
        "not there yet: geography",
        """
        st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
        """,
    ),
    Refusals(
        "later",
        "not there yet: sketches",
        """
        approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint kll_sketch_get_n_double
        kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
        kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
        kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
        kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float theta_difference
        theta_intersection theta_sketch_estimate theta_union tuple_difference_double tuple_difference_integer
        tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
        tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
        tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
        tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_double
        tuple_union_integer tuple_union_theta_double tuple_union_theta_integer
        """,
    ),
    Refusals(
        "later",
        "not there yet: Avro",
        """
        from_avro schema_of_avro to_avro
        """,
    ),
    Refusals(
        "later",
        "not there yet: Protobuf",
        """
        from_protobuf to_protobuf
        """,
    ),
    Refusals(
        "later",
        "not there yet: vectors",
        """
        vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
        """,
    ),
    Refusals(
        "later",
        "not there yet: others",
        """
        aes_decrypt aes_encrypt bitmap_bit_position bitmap_bucket_number bitmap_count hmac try_aes_decrypt
        typeof
        """,
    ),
    Refusals(
        "later",
        "not there yet: choices",
        """
        nullifzero zeroifnull
        """,
    ),
)

_MESSAGES = {
    "aggregate": "the aggregate {} is not supported; a filter sees one event",
    "window": "the window function {} is not supported; a filter sees one event",
    "rows": "{} makes several rows; a filter sees one event",
    "changing": "{} is not supported: a standing filter may depend on nothing but its event; write a fixed value",
    "session": "{} is not supported: a standing filter may depend on nothing but its event; write a fixed value",
    "machine": "{} is not supported: its last digit depends on the processor, so a filter might match on one machine only",
    "lambda": "{} takes an array and a condition on its elements: write exists(a, x -> x > 5)",
    "later": "{} is not supported yet; see docs/language.md for the functions there are",
}
#: What to write in place of a function.
_INSTEAD = {
    "date_part": "extract(YEAR FROM t)",
    "datepart": "extract(YEAR FROM t)",
    "zeroifnull": "coalesce(v, 0)",
    "nullifzero": "nullif(v, 0)",
    "filter": "exists(a, x -> ...) or forall(a, x -> ...)",
    "transform": "exists(a, x -> ...) or forall(a, x -> ...)",
    "map_filter": "exists(map_values(m), x -> ...)",
    "map_entries": "exists(map_values(m), x -> ...), or m['key']",
    "pi": "3.141592653589793D",
    "e": "2.718281828459045D",
}
_KINDS = {name: group.kind for group in REFUSED for name in group.names}


def refusal(name: str) -> str | None:
    """Why one of Spark's functions is refused; None if it is not one of them."""
    kind = _KINDS.get(name.lower())
    if kind is None:
        return None
    if name.lower() in _INSTEAD:
        return f"{name.upper()} is not supported; write {_INSTEAD[name.lower()]}"
    return _MESSAGES[kind].format(name.upper())
