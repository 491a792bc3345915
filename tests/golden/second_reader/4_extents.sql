-- Which extents and which parts of sealed segments hold what can be read: of each partition the offsets from the log start to the LSO.

-- 6.6: a root's leaves have the first row, the last row and the number of rows that it says; a list has the rows that its entry says.
INSERT INTO problems SELECT '6.6: a leaf', key FROM root_rows r WHERE (first_topic_id, first_partition, last_topic_id, last_partition, rows) IS DISTINCT FROM (
    SELECT (arg_min(topic_id, ordinal), arg_min(partition, ordinal), arg_max(topic_id, ordinal), arg_max(partition, ordinal), count(*)) FROM list_rows l WHERE l.object = r.key);
INSERT INTO problems SELECT '5.5: rows of a segment list', key FROM lists l WHERE rows IS NOT NULL AND rows <> (
    SELECT count(*) FROM list_rows x WHERE x.object = l.key OR x.object IN (SELECT r.key FROM root_rows r WHERE r.object = l.key));

-- Sealed: the parts of the lists, and those of segments that no list has yet. Together they are the offsets up to the sealed end.
CREATE TABLE parts AS
SELECT s.*, p.log_start, p.lso, t.directory FROM (
    SELECT * FROM sealed_parts WHERE segment >= getvariable('listed_segments')
    UNION ALL BY NAME
    SELECT topic_id, partition, start_offset, end_offset, segment, batches, records, first_aborted, aborted, index_key, index_size, index_sha256,
        nullif(txnindex_key, '') AS txnindex_key, txnindex_size, txnindex_sha256 FROM list_rows
) s JOIN partitions p USING (topic_id, partition) JOIN topics t USING (topic_id) WHERE s.end_offset > p.log_start;
INSERT INTO problems SELECT '5.5: parts follow each other up to the sealed end', topic_id || '/' || partition FROM (
    SELECT topic_id, partition, start_offset, lag(end_offset) OVER (PARTITION BY topic_id, partition ORDER BY start_offset) AS before, log_start FROM parts
) WHERE CASE WHEN before IS NULL THEN start_offset > log_start ELSE start_offset <> before END;
INSERT INTO problems SELECT '5.5: parts up to the sealed end', topic_id || '/' || partition FROM partitions p
WHERE sealed_end > log_start AND sealed_end IS DISTINCT FROM (SELECT max(end_offset) FROM parts x WHERE x.topic_id = p.topic_id AND x.partition = p.partition);
INSERT INTO problems SELECT '5: sidecars in the own directory of the topic', index_key FROM parts
WHERE NOT regexp_full_match(index_key, '(.*)/segments/\d{20}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(index|runs)') OR split_part(index_key, '/', 1) <> directory
    OR coalesce(split_part(txnindex_key, '/', 1), directory) <> directory;

-- Above: the spilled end (5.20) is where extents of the entries and of the snapshot begin to count.
CREATE TABLE tails AS
SELECT topic_id, partition, log_start, lso, greatest(any_value(sealed_end), coalesce(max(s.end_offset), 0)) AS spilled_end
FROM partitions LEFT JOIN spills s USING (topic_id, partition) GROUP BY ALL;

-- Rows of a snapshot (object '') and of spills belong to partitions, one after the other; they count from `low` to `high` (exclusive).
CREATE TABLE section_places AS
WITH counts AS (
    SELECT '' AS object, topic_id, partition, extents, markers, aborted FROM old_partitions
    UNION ALL SELECT object, topic_id, partition, extents, markers, aborted FROM section_partitions
),
places AS (
    SELECT *, sum(extents) OVER w - extents AS first_extent, sum(markers) OVER w - markers AS first_marker, sum(aborted) OVER w - aborted AS first_aborted
    FROM counts WINDOW w AS (PARTITION BY object ORDER BY topic_id, partition)
)
SELECT p.*, CASE WHEN p.object = '' THEN t.spilled_end ELSE s.start_offset END AS low, CASE WHEN p.object = '' THEN t.lso ELSE s.end_offset END AS high,
    s.extents AS spilled_extents, s.markers AS spilled_markers, s.aborted AS spilled_aborted
FROM places p JOIN tails t USING (topic_id, partition) LEFT JOIN spills s ON s.key = p.object AND s.topic_id = p.topic_id AND s.partition = p.partition
WHERE p.object = '' OR s.key IS NOT NULL;
CREATE TABLE kept_extents AS
SELECT p.topic_id, p.partition, x.* FROM section_extents x JOIN section_places p
    ON p.object = x.object AND x.ordinal >= p.first_extent AND x.ordinal < p.first_extent + p.extents AND x.base_offset >= p.low AND x.base_offset < p.high;
CREATE TABLE markers AS
SELECT p.topic_id, p.partition, x.object, x."offset", x.producer_id, x.epoch, x.commit = 1 AS is_commit, x.entry FROM section_markers x JOIN section_places p
    ON p.object = x.object AND x.ordinal >= p.first_marker AND x.ordinal < p.first_marker + p.markers AND x."offset" >= p.low
    AND (x."offset" < p.high OR p.object = '')
UNION ALL
SELECT topic_id, partition, 'entries', "offset", producer_id, epoch, is_commit, entry FROM new_markers JOIN tails USING (topic_id, partition) WHERE "offset" >= spilled_end;
-- The abort index (5.3): of an ABORT marker of the entries the first offset is that of its transaction in the partition.
CREATE TABLE abort_index AS
SELECT p.topic_id, p.partition, x.object, x.producer_id, x.first_offset, x.last_offset FROM section_aborted x JOIN section_places p
    ON p.object = x.object AND x.ordinal >= p.first_aborted AND x.ordinal < p.first_aborted + p.aborted AND x.last_offset >= p.low
    AND (x.last_offset < p.high OR p.object = '')
UNION ALL
SELECT topic_id, partition, 'entries', m.producer_id, b.first_offset, m."offset" FROM new_markers m JOIN begun b USING (topic_id, partition, producer_id, epoch)
    JOIN tails USING (topic_id, partition) WHERE NOT is_commit AND m."offset" >= spilled_end;
INSERT INTO problems SELECT '6.6: a spill has the rows that its entry counts', object FROM section_places p WHERE object <> '' AND (
    spilled_extents <> (SELECT count(*) FROM kept_extents x WHERE x.object = p.object AND x.topic_id = p.topic_id AND x.partition = p.partition)
    OR spilled_markers <> (SELECT count(*) FROM markers x WHERE x.object = p.object AND x.topic_id = p.topic_id AND x.partition = p.partition)
    OR spilled_aborted <> (SELECT count(*) FROM abort_index x WHERE x.object = p.object AND x.topic_id = p.topic_id AND x.partition = p.partition));
INSERT INTO problems SELECT '6.6: a spill is read', key FROM spills s JOIN partitions USING (topic_id, partition)
WHERE sealed_end < lso AND NOT EXISTS (SELECT 1 FROM section_places p WHERE p.object = s.key AND p.topic_id = s.topic_id AND p.partition = s.partition);

-- Files by the number that extents use: of a snapshot or spill, or in one append or stage.
CREATE TABLE files AS
SELECT object, number, key, size, sha256, footer_bytes, footer_sha256, rows, schema_id FROM section_files
UNION ALL
SELECT object, i - 1, f.key, f.size, f.sha256, f.footer_bytes, f.footer_sha256, f.rows, coalesce(f.schema_id, 0)
FROM (SELECT object, unnest(files) AS f, generate_subscripts(files, 1) AS i FROM appends);

-- 4.2: the embedded files of an entry, in the order of its operations, are its payload from the first byte to the last.
INSERT INTO problems SELECT '4.2: embedded files are the payload', 'entry ' || entry FROM (
    SELECT entry, split_part(key, '@', 2) AS place, coalesce(lag("end") OVER (PARTITION BY entry ORDER BY number, i), 0) AS start FROM (
        SELECT entry, number, i, f.key AS key, sum(f.size) OVER (PARTITION BY entry ORDER BY number, i) AS "end"
        FROM (SELECT entry, number, unnest(files) AS f, generate_subscripts(files, 1) AS i FROM appends) WHERE contains(f.key, '@')
    )
) WHERE place <> printf('%020d+%d', entry, start::BIGINT);
INSERT INTO problems SELECT '4.2: embedded files are the payload', 'entry ' || h.entry FROM heads h WHERE h.in_slot AND h.entry > getvariable('start')
    AND coalesce(payload_size, 0) <> (SELECT coalesce(sum(size), 0) FROM files WHERE contains(key, '@') AND object LIKE h.entry || ':%');

-- 5.6, 5.3: what a transaction has staged, in the order of its stages; the commit gives it offsets.
CREATE TABLE stages AS
WITH kept AS (
    SELECT unnest(from_json(state->'transactional_ids', '[{"producer_id": "BIGINT", "epoch": "BIGINT", "staged": [{"topic_id": "VARCHAR", "table": "BIGINT",
        "section": "INT", "first_file": "BIGINT", "partitions": [{"partition": "INT", "records": "BIGINT", "batch_count": "BIGINT"}]}]}]')) AS t FROM snapshot
),
kept_stages AS (SELECT t.producer_id AS producer_id, t.epoch AS epoch, unnest(t.staged) AS g, generate_subscripts(t.staged, 1) AS i FROM kept)
SELECT k.producer_id, k.epoch, k.g.topic_id AS topic_id, p.partition, p.records, p.batch_count, -1 AS entry, i AS number, '' AS object, k.g.first_file AS first_file,
    k.g.section AS section, t.key AS table_key, t.size AS table_size, t.sha256 AS table_sha256
FROM kept_stages k, unnest(k.g.partitions) AS u(p) JOIN section_tables t ON t.object = '' AND t.number = k.g."table"
UNION ALL
SELECT producer_id, epoch, topic_id, partition, records, batch_count, entry, number, object, 0, section, table_key, table_size, table_sha256
FROM append_parts WHERE is_stage;
INSERT INTO problems SELECT '5.3: placed records are those of the stages', 'entry ' || p.entry FROM placements p
WHERE records IS DISTINCT FROM (SELECT sum(s.records) FROM stages s
    WHERE s.producer_id = p.producer_id AND s.epoch = p.epoch AND s.topic_id = p.topic_id AND s.partition = p.partition);

-- An extent is a batch, or with a batch table (`table_key`) all batches of its section and partition there.
CREATE TABLE extents AS
WITH single AS (
    SELECT a.*, b.*, sum(b.records) OVER (PARTITION BY object, b.partition ORDER BY i) - b.records AS before
    FROM (SELECT * EXCLUDE (parts, files, batches), unnest(batches) AS b, generate_subscripts(batches, 1) AS i FROM appends WHERE table_key IS NULL) a
),
every AS (
    SELECT x.topic_id, x.partition, x.base_offset, x.records, x.producer_id, x.epoch, x.transactional = 1 AS is_transactional, x.entry, x.timestamp_ms, x.object,
        x.file, x.row_group, x.row_group_count, x.first_file, x.section, x.batch_count, t.key AS table_key, t.size AS table_size, t.sha256 AS table_sha256
    FROM kept_extents x LEFT JOIN section_tables t ON t.object = x.object AND t.number = x."table"
    UNION ALL BY NAME
    SELECT s.topic_id, s.b.partition AS partition, p.base_offset + s.before AS base_offset, s.b.records AS records, s.producer_id, s.epoch,
        s.transactional_id IS NOT NULL AS is_transactional, s.entry, s.timestamp_ms, s.object, s.b.file AS file, s.b.row_group AS row_group,
        s.b.row_group_count AS row_group_count
    FROM single s JOIN append_parts p ON p.object = s.object AND p.partition = s.b.partition JOIN tails e ON e.topic_id = s.topic_id AND e.partition = s.b.partition
    WHERE p.base_offset + s.before >= e.spilled_end
    UNION ALL BY NAME
    SELECT p.topic_id, p.partition, p.base_offset, p.records, p.producer_id, p.epoch, p.transactional_id IS NOT NULL AS is_transactional, p.entry, p.timestamp_ms,
        p.object, 0 AS first_file, p.section, p.batch_count, p.table_key, p.table_size, p.table_sha256
    FROM append_parts p JOIN tails e USING (topic_id, partition) WHERE table_key IS NOT NULL AND NOT is_stage AND p.base_offset >= e.spilled_end
    UNION ALL BY NAME
    SELECT * FROM (
        SELECT p.topic_id, p.partition, p.base_offset + sum(s.records) OVER (PARTITION BY p.topic_id, p.partition, p.base_offset ORDER BY s.entry, s.number) - s.records
            AS base_offset, s.records, p.producer_id, p.epoch, true AS is_transactional, p.entry, p.timestamp_ms, s.object, s.first_file, s.section, s.batch_count,
            s.table_key, s.table_size, s.table_sha256
        FROM placements p JOIN stages s USING (producer_id, epoch, topic_id, partition)
    ) JOIN tails e USING (topic_id, partition) WHERE base_offset >= e.spilled_end
)
SELECT e.* EXCLUDE (spilled_end, log_start, lso), t.log_start, t.lso
FROM every e JOIN tails t USING (topic_id, partition) WHERE e.base_offset < t.lso AND e.base_offset + e.records > t.log_start;

CREATE OR REPLACE VIEW wanted AS
SELECT DISTINCT table_key AS key, table_size AS size, table_sha256 AS sha256, 'table' AS kind FROM extents WHERE table_key IS NOT NULL
UNION SELECT index_key, index_size, index_sha256, CASE WHEN index_key LIKE '%.runs' THEN 'runs' ELSE 'index' END FROM parts
UNION SELECT txnindex_key, txnindex_size, txnindex_sha256, 'txnindex' FROM parts WHERE txnindex_key IS NOT NULL;
