"""The percentiles of `goodput report` over a CSV log, asked of pandas or DuckDB.

    cargo xtask request-log -o 10m.csv
    python benches/percentiles.py duckdb 10m.csv
    python benches/percentiles.py pandas 10m.csv

Needs `pip install duckdb pandas`. It does less than a report: no check of ids, times or outcomes,
no intervals, no concurrency, no findings.
"""

import sys

SHARES = [0.5, 0.9, 0.95, 0.99]
COLUMNS = ["ttft_ms", "e2e_ms", "output_tokens", "outcome"]


def with_duckdb(path):
    import duckdb

    duckdb.execute("SET threads = 1")
    listed = ", ".join(
        f"quantile_cont({column}, {SHARES}), avg({column}), max({column})"
        for column in ["ttft_ms", "tpot_ms", "e2e_ms"]
    )
    query = f"""
        WITH requests AS (
            SELECT ttft_ms, e2e_ms,
                CASE WHEN output_tokens > 1 THEN (e2e_ms - ttft_ms) / (output_tokens - 1) END
                    AS tpot_ms
            FROM read_csv('{path}') WHERE outcome = 'completed')
        SELECT {listed} FROM requests"""
    print(duckdb.execute(query).fetchall())


def with_pandas(path):
    import pandas

    log = pandas.read_csv(path, usecols=COLUMNS)
    log = log[log.outcome == "completed"]
    several = log[log.output_tokens > 1]
    tpot = (several.e2e_ms - several.ttft_ms) / (several.output_tokens - 1)
    for name, values in [("ttft_ms", log.ttft_ms), ("tpot_ms", tpot), ("e2e_ms", log.e2e_ms)]:
        print(name, list(values.quantile(SHARES)), values.mean(), values.max())


{"duckdb": with_duckdb, "pandas": with_pandas}[sys.argv[1]](sys.argv[2])
