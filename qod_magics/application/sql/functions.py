"""The functions that an SQL text calls, and those of Spark's that give one value for each row. Pure.

A value may depend on other rows (`session_window`), on the place (`input_file_name`), on the time or on chance. No list
of such functions is complete, so this one names those of which none of this is true.
"""

from __future__ import annotations

from itertools import pairwise

from sqlglot.tokenizer_core import TokenType

from qod_magics.application.sql.names import tokenized


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Functions whose value depends on their arguments alone, and on settings of the session; by name, in lower case.
OF_ROWS = _names(
    """
    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div e exp
    expm1 factorial floor greatest hex hypot isnan least ln log log10 log1p log2 mod nanvl negative pi pmod positive pow
    power radians rint round sec shiftleft shiftright shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add
    try_divide try_mod try_multiply try_subtract unhex width_bucket bit_count bit_get getbit
    coalesce equal_null if ifnull isnotnull isnull nullif nullifzero nvl nvl2 zeroifnull typeof
    bigint binary boolean cast date double float int smallint string timestamp tinyint try_cast
    ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains crc32 decode elt
    encode endswith find_in_set format_number format_string hash ilike initcap instr lcase left len length levenshtein
    like locate lower lpad ltrim luhn_check mask md5 octet_length overlay position printf quote regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right
    rlike rpad rtrim sentences sha sha1 sha2 soundex space split split_part startswith substr substring substring_index
    to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number ucase unbase64 upper url_decode
    url_encode parse_url try_parse_url try_url_decode xxhash64
    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day
    make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval
    minute month monthname months_between next_day quarter second timestamp_micros timestamp_millis timestamp_seconds
    timestampadd timestampdiff to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp
    trunc try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds weekday weekofyear window year
    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap
    arrays_zip cardinality element_at flatten get map map_concat map_contains_key map_entries map_from_arrays
    map_from_entries map_keys map_values named_struct sequence size slice sort_array str_to_map struct try_element_at
    from_csv from_json get_json_object json_array_length json_object_keys parse_json to_csv to_json try_parse_json
    try_variant_get variant_get is_variant_null
    """
)
#: Syntax with parentheses behind it: no functions.
SYNTAX = _names(
    """
    all and as between by case char dec decimal distinct else escape filter from having in interval limit not numeric
    offset on or select then varchar when where
    """
)
#: Special syntax of Spark's parser, which no function of a user replaces.
BUILT_IN = frozenset(("try_cast", "timestampadd", "timestampdiff"))


def called(sql: str) -> frozenset[str]:
    """Return the names, in lower case, of the functions that a text calls, with what qualifies them. Raises
    ApplicationError for what can't be read."""
    tokens, found = tokenized(sql), set[str]()
    for i, (token, following) in enumerate(pairwise(tokens)):
        if following.token_type != TokenType.L_PAREN or token.token_type in (TokenType.STRING, TokenType.NUMBER):
            continue
        quoted = token.token_type == TokenType.IDENTIFIER
        name = token.text.lower() if quoted else token.text.lower().split()[-1]
        if i and tokens[i - 1].token_type == TokenType.DOT:
            found.add(f"{tokens[i - 2].text.lower()}.{name}")
        elif quoted or (name not in SYNTAX and any(each.isalnum() for each in name)):
            found.add(name)
    return frozenset(found)
