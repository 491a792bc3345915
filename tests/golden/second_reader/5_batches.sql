-- Batches and their outcome: what `read_committed` shows of each partition (6), and the files that have it.

-- 6.6: a .txnindex has 34 bytes for an aborted transaction, those of one partition after the other.
CREATE TABLE sealed_aborts AS
WITH cells AS (
    SELECT p.topic_id, p.partition, p.start_offset, f.content[34 * i + 1:34 * i + 34] AS cell
    FROM parts p JOIN fetched f ON f.key = p.txnindex_key, unnest(range(p.first_aborted::BIGINT, (p.first_aborted + p.aborted)::BIGINT)) AS u(i)
)
SELECT topic_id, partition, start_offset, ('0x' || hex(cell[3:10]))::BIGINT AS producer_id, ('0x' || hex(cell[11:18]))::BIGINT AS first_offset,
    ('0x' || hex(cell[19:26]))::BIGINT AS last_offset FROM cells;
INSERT INTO problems SELECT '5.5: aborted transactions have a .txnindex', index_key FROM parts WHERE aborted > 0 AND txnindex_key IS NULL;

-- Sealed batches, with the outcome that the .index says, and the one that the filter of section 6 gives.
CREATE TABLE sealed_batches AS
SELECT p.topic_id, p.partition, p.start_offset, p.index_key, p.log_start, p.lso, r.* EXCLUDE (partition), EXISTS (
    SELECT 1 FROM sealed_aborts a WHERE a.topic_id = p.topic_id AND a.partition = p.partition AND a.start_offset = p.start_offset
        AND a.producer_id = r.producer_id AND r.transactional = 1 AND a.first_offset <= r.base_offset AND r.base_offset < a.last_offset) AS is_dropped
FROM parts p JOIN index_rows r ON r.object = p.index_key AND r.partition = p.partition AND r.base_offset >= p.start_offset AND r.base_offset < p.end_offset;
INSERT INTO problems SELECT '6.6: outcome', index_key FROM sealed_batches WHERE is_dropped <> (outcome = 2) OR (outcome = 0) <> (transactional = 0);
INSERT INTO problems SELECT '5.5: rows of an .index or .runs', index_key FROM parts p WHERE (batches, records) IS DISTINCT FROM (
    SELECT (count(*), coalesce(sum(records), 0)) FROM (
        SELECT records FROM sealed_batches b WHERE b.topic_id = p.topic_id AND b.partition = p.partition AND b.start_offset = p.start_offset
        UNION ALL SELECT records FROM runs_rows r
        WHERE r.object = p.index_key AND r.partition = p.partition AND r.start_offset >= p.start_offset AND r.end_offset <= p.end_offset));

-- Batches above the sealed end; with a batch table (5.2) their offsets follow each other in its order.
CREATE TABLE tail_batches AS
WITH rows AS (
    SELECT e.topic_id, e.partition, e.base_offset + sum(r.records) OVER w - r.records AS base_offset, r.records, e.producer_id, e.epoch, e.is_transactional, e.entry,
        e.timestamp_ms, e.object, e.first_file + r.file AS file, r.row_group, r.row_group_count, e.log_start, e.lso
    FROM extents e JOIN table_rows r ON r.object = e.table_key AND r.section = e.section AND r.partition = e.partition
    WINDOW w AS (PARTITION BY e.topic_id, e.partition, e.base_offset ORDER BY r.ordinal)
    UNION ALL BY NAME
    SELECT topic_id, partition, base_offset, records, producer_id, epoch, is_transactional, entry, timestamp_ms, object, file, row_group, row_group_count, log_start, lso
    FROM extents WHERE table_key IS NULL
)
SELECT r.*, f.* EXCLUDE (object, number), m.is_commit, m.entry AS commit_entry, EXISTS (
    SELECT 1 FROM abort_index a WHERE a.topic_id = r.topic_id AND a.partition = r.partition AND a.producer_id = r.producer_id AND r.is_transactional
        AND a.first_offset <= r.base_offset AND r.base_offset < a.last_offset) AS is_dropped
FROM (SELECT * RENAME (records AS batch_records) FROM rows) r LEFT JOIN files f ON f.object = r.object AND f.number = r.file
    LEFT JOIN markers m ON r.is_transactional AND m.topic_id = r.topic_id AND m.partition = r.partition AND m.producer_id = r.producer_id AND m.epoch = r.epoch;
INSERT INTO problems SELECT '5.2: batches of a batch table', table_key FROM extents e WHERE table_key IS NOT NULL AND (batch_count, records) IS DISTINCT FROM (
    SELECT (count(*), sum(records)) FROM table_rows r WHERE r.object = e.table_key AND r.section = e.section AND r.partition = e.partition);
INSERT INTO problems SELECT '5.2: the file of a batch', 'entry ' || entry FROM tail_batches WHERE key IS NULL;
INSERT INTO problems SELECT '5.3: below the LSO every transaction has its marker, and aborted ones are in the abort index', 'entry ' || entry FROM tail_batches
WHERE is_transactional AND coalesce(is_commit = is_dropped, true);
-- From the sealed end to the LSO batches and markers follow each other without a gap.
INSERT INTO problems SELECT '5.2, 5.3: offsets without a batch or marker', topic_id || '/' || partition FROM (
    SELECT topic_id, partition, first, lag(last, 1, sealed_end) OVER (PARTITION BY topic_id, partition ORDER BY first, last) AS before FROM (
        SELECT topic_id, partition, base_offset AS first, base_offset + batch_records AS last FROM tail_batches
        UNION ALL SELECT topic_id, partition, "offset", "offset" + 1 FROM markers
        UNION ALL SELECT topic_id, partition, lso, lso FROM partitions
    ) JOIN partitions USING (topic_id, partition) WHERE first < lso OR last = lso
) WHERE first <> before;

-- All runs of row groups that are read, with the offsets [low, high) that count in them.
CREATE TABLE reads AS
SELECT topic_id, partition, false AS is_compacted, base_offset, batch_records AS records, nullif(producer_id, -1) AS producer_id,
    CASE WHEN producer_id >= 0 THEN epoch END AS producer_epoch, entry, timestamp_ms, coalesce(commit_entry, entry) AS commit_entry, row_group, row_group_count, key AS file_key,
    size AS file_size, sha256 AS file_sha256, footer_bytes AS file_footer_bytes, footer_sha256 AS file_footer_sha256, rows AS file_rows, schema_id AS file_schema_id,
    log_start AS low, lso AS high
FROM tail_batches WHERE NOT is_dropped
UNION ALL BY NAME
SELECT topic_id, partition, false AS is_compacted, base_offset, records, nullif(producer_id, -1) AS producer_id, CASE WHEN producer_id >= 0 THEN epoch END AS producer_epoch, entry,
    timestamp_ms, commit_entry, row_group, row_group_count, file_key, file_size, file_sha256, file_footer_bytes, file_footer_sha256, file_rows, file_schema_id,
    log_start AS low, lso AS high
FROM sealed_batches WHERE outcome <> 2 AND base_offset + records > log_start
UNION ALL BY NAME
SELECT p.topic_id, p.partition, true AS is_compacted, r.start_offset AS base_offset, r.records, r.row_group, r.row_group_count, r.file_key, r.file_size, r.file_sha256,
    r.file_footer_bytes, r.file_footer_sha256, r.file_rows, r.file_schema_id, greatest(p.log_start, p.start_offset) AS low, p.end_offset AS high
FROM parts p JOIN runs_rows r ON r.object = p.index_key AND r.partition = p.partition AND r.start_offset >= p.start_offset AND r.end_offset <= p.end_offset
WHERE r.end_offset > p.log_start;

-- 5: files lie in the topic's directories: its own, and for a name below 240 characters all others <name>-<8 hex>.
INSERT INTO problems SELECT '5: files in the directories of the topic', file_key FROM reads JOIN topics USING (topic_id)
WHERE NOT regexp_full_match(file_key, '[^/]+-[0-9a-f]{8}/data/\d{20}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet(@\d{20}\+(0|[1-9]\d{0,7}))?')
    OR split_part(file_key, '/', 1) <> directory AND (length(name) >= 240 OR left(split_part(file_key, '/', 1), -9) <> name);

-- The files as bytes: objects, and pieces of payloads (4.2). The glue fetches the former into `fetched`.
CREATE OR REPLACE VIEW wanted AS
SELECT DISTINCT file_key AS key, file_size AS size, file_sha256 AS sha256, 'file' AS kind FROM reads WHERE NOT contains(file_key, '@');
INSERT INTO fetched
SELECT DISTINCT file_key, payload[start + 1:start + file_size] FROM (
    SELECT file_key, file_size, split_part(split_part(file_key, '@', 2), '+', 1)::BIGINT AS entry, split_part(file_key, '+', 2)::BIGINT AS start
    FROM reads WHERE contains(file_key, '@')
) JOIN heads USING (entry);
