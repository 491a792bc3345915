-- Files as the log and their footers describe them (6.1). The glue has written each to the folder in the variable folder, as `path`.
CREATE TABLE file_checks AS
SELECT r.*, f.content, getvariable('folder') || '/' || dense_rank() OVER (ORDER BY r.file_key) || '.parquet' AS path FROM (
    SELECT DISTINCT file_key, file_size, file_sha256, file_footer_bytes, file_footer_sha256, file_rows FROM reads
) r LEFT JOIN fetched f ON f.key = r.file_key;
INSERT INTO problems SELECT '4.2, 6.1: size and sha256 of a file', file_key FROM file_checks
WHERE content IS NULL OR octet_length(content) <> file_size OR sha256(content) <> file_sha256;
INSERT INTO problems SELECT '6.1: footer of a file', file_key FROM file_checks WHERE sha256(content[-file_footer_bytes:]) <> file_footer_sha256;

-- The newest schema of each topic (5.4); types of 6.2 as those of DuckDB. The glue fills in quoted names and types.
CREATE TABLE newest AS
SELECT topic_id, name, timestamp_column, arg_max(s.fields, schema_id) AS fields FROM topics JOIN schemas s USING (topic_id) GROUP BY ALL;
CREATE TABLE newest_fields AS
SELECT topic_id, i, field->>'name' AS name, field->'type' AS type
FROM (SELECT topic_id, unnest(fields::JSON[]) AS field, generate_subscripts(fields::JSON[], 1) AS i FROM newest);
CREATE TABLE types AS FROM (VALUES ('bool', 'BOOLEAN'), ('int8', 'TINYINT'), ('int16', 'SMALLINT'), ('int32', 'INTEGER'), ('int64', 'BIGINT'), ('float32', 'FLOAT'),
    ('float64', 'DOUBLE'), ('string', 'VARCHAR'), ('binary', 'BLOB'), ('date32', 'DATE'), ('timestamp', 'TIMESTAMPTZ'), ('timestamp_ntz', 'TIMESTAMP'),
    ('time', 'TIME'), ('duration', 'BIGINT'), ('variant', 'STRUCT("value" BLOB, metadata BLOB)')) AS t(name, type);
CREATE TABLE columns (topic_id VARCHAR, i BIGINT, quoted VARCHAR, type VARCHAR);
-- Checksums of column chunks, for the glue to compare: the bytes of a file from `start` on.
CREATE TABLE sums (path VARCHAR, start BIGINT, size BIGINT, crc VARCHAR);
