-- Row groups and column chunks of the files (6.1).
SET VARIABLE paths = (SELECT list(path) FROM file_checks);
CREATE TABLE chunks AS
SELECT file_name AS path, row_group_id, column_id, row_group_num_rows, coalesce(dictionary_page_offset, data_page_offset) AS start, total_compressed_size AS size
FROM parquet_metadata(getvariable('paths'));
CREATE TABLE row_groups AS
SELECT path, row_group_id, n, sum(n) OVER (PARTITION BY path ORDER BY row_group_id) - n AS first_row
FROM (SELECT DISTINCT path, row_group_id, row_group_num_rows AS n FROM chunks);
INSERT INTO problems SELECT '6.1: rows of a file', file_key FROM file_checks c WHERE file_rows <> (SELECT sum(n) FROM row_groups g WHERE g.path = c.path);
CREATE TABLE footers AS
SELECT file_name AS path, decode(value) AS crcs FROM parquet_kv_metadata(getvariable('paths')) WHERE key = 'txnlog.chunk_crc32'::BLOB;
-- From byte 4 on the chunks follow each other without a gap; 8 digits of txnlog.chunk_crc32 are for each.
CREATE TABLE chunk_sums AS
SELECT c.path, start, size, substr(crcs, 8 * i::INT + 1, 8) AS crc, i, length(crcs) AS digits, count(*) OVER (PARTITION BY c.path) AS n,
    lag(start + size, 1, 4) OVER (PARTITION BY c.path ORDER BY i) AS before
FROM (SELECT *, row_number() OVER (PARTITION BY path ORDER BY row_group_id, column_id) - 1 AS i FROM chunks) c LEFT JOIN footers USING (path);
INSERT INTO problems SELECT '6.1: chunks follow each other', path FROM chunk_sums WHERE start <> before;
INSERT INTO sums SELECT path, start, size, crc FROM chunk_sums;
INSERT INTO problems SELECT '6.1: a checksum for each chunk', path FROM chunk_sums WHERE digits IS DISTINCT FROM 8 * n;
-- A batch is a run of row groups, with as many rows.
CREATE TABLE runs AS
SELECT r.*, c.path, f.first_row, l.first_row + l.n - f.first_row AS run_rows
FROM reads r JOIN file_checks c USING (file_key) LEFT JOIN row_groups f ON f.path = c.path AND f.row_group_id = r.row_group
    LEFT JOIN row_groups l ON l.path = c.path AND l.row_group_id = r.row_group + r.row_group_count - 1;
INSERT INTO problems SELECT '5.2: rows of a run of row groups', file_key FROM runs WHERE run_rows IS DISTINCT FROM records;
