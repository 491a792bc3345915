-- Files as the log and their footers describe them (6.1). The glue has written each to the folder in the variable folder, as `path`.
CREATE TABLE file_checks AS
SELECT r.*, f.content, getvariable('folder') || '/' || dense_rank() OVER (ORDER BY r.file_key) || '.parquet' AS path FROM (
    SELECT DISTINCT file_key, file_size, file_sha256, file_footer_bytes, file_footer_sha256, file_rows FROM reads
) r LEFT JOIN fetched f ON f.key = r.file_key;
INSERT INTO problems SELECT '4.2, 6.1: size and sha256 of a file', file_key FROM file_checks
WHERE content IS NULL OR octet_length(content) <> file_size OR sha256(content) <> file_sha256;
INSERT INTO problems SELECT '6.1: footer of a file', file_key FROM file_checks WHERE sha256(content[-file_footer_bytes:]) <> file_footer_sha256;
