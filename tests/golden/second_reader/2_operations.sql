-- Documents, their checksums and their chain (4, 4.1), and their operations (5).
CREATE TABLE documents AS
WITH texts AS (
    SELECT h.*, p.bytes AS plain, try(decode(p.bytes)) AS text FROM heads h LEFT JOIN plain p USING (entry)
),
-- The plain document ends with exactly 79 bytes: ,"x_sha256":"<64 hex digits>"}
sums AS (
    SELECT *, regexp_full_match(right(text, 79), ',"x_sha256":"[0-9a-f]{64}"\}') AS has_sum FROM texts
),
parsed AS (
    SELECT *, CASE WHEN text IS NOT NULL AND json_valid(text) THEN text::JSON END AS document FROM sums
)
SELECT *, sha256(head) AS head_sha256, (document->>'timestamp_ms')::BIGINT AS timestamp_ms FROM parsed;

CREATE TABLE broken AS
SELECT entry, in_slot, rule FROM (
    SELECT entry, in_slot, unnest([
        CASE WHEN document IS NULL OR size > 8388608 THEN '3: a JSON object in UTF-8, at most 8 MiB' END,
        CASE WHEN has_sum AND substr(right(text, 79), 14, 64) <> sha256(plain[:octet_length(plain) - 79]) THEN '4.1: checksum in the document' END,
        CASE WHEN is_framed AND head[-32:] <> unhex(sha256(body)) THEN '4.1: checksum behind the compression' END,
        CASE WHEN is_framed <> (is_compressed AND has_sum) THEN '4.1: one layer without the other' END,
        CASE WHEN NOT has_sum AND NOT list_has_all(['format', 'entry', 'log_id', 'write_id', 'previous', 'timestamp_ms', 'engine', 'intents',
            'operations', 'payload'], json_keys(document)) THEN '4.1: unknown field without a checksum' END,
        CASE WHEN (document->>'format')::BIGINT IS DISTINCT FROM 1 THEN '4: format 1' END,
        CASE WHEN (document->>'entry')::BIGINT IS DISTINCT FROM entry THEN '4: number of the slot' END,
        CASE WHEN document->>'log_id' IS DISTINCT FROM getvariable('log_id') THEN '4: log_id of format.json' END,
        CASE WHEN entry = 0 AND document->>'previous' IS DISTINCT FROM (SELECT sha256(content) FROM format) THEN '4: entry 0 names format.json' END,
        CASE WHEN in_slot AND (document->'payload'->>'size')::BIGINT IS DISTINCT FROM payload_size THEN '4.2: size of the payload' END,
        CASE WHEN payload_size > 4194304 THEN '4.2: payload of at most 4 MiB' END
    ]) AS rule FROM documents
) WHERE rule IS NOT NULL
UNION ALL
-- Of two that do not chain the one below the boundary is to blame.
SELECT CASE WHEN b.entry < getvariable('boundary') THEN b.entry ELSE d.entry END, b.in_slot, '4: previous'
FROM documents d JOIN documents b ON b.entry = d.entry - 1 WHERE d.document->>'previous' IS DISTINCT FROM b.head_sha256
UNION ALL
SELECT d.entry, d.in_slot, '4: log time' FROM documents d JOIN documents b ON b.entry = d.entry - 1 WHERE d.timestamp_ms <= b.timestamp_ms;

-- 6.7: only what slots hold is ever called corrupt. A bundle that does not fit ends the history: it begins above.
INSERT INTO problems SELECT rule, 'entry ' || entry FROM broken WHERE in_slot AND entry >= getvariable('boundary');
SET VARIABLE first_entry = (SELECT coalesce(max(e), 0) FROM (
    SELECT entry + 1 AS e FROM broken WHERE NOT in_slot OR entry < getvariable('boundary')
    UNION ALL SELECT entry FROM documents WHERE entry - 1 NOT IN (SELECT entry FROM documents)));
-- 7: an entry that is absent below one that is there, and not below the boundary, is lost.
INSERT INTO problems SELECT '7: a lost entry', 'before entry ' || getvariable('first_entry') WHERE getvariable('first_entry') > getvariable('boundary');

CREATE TABLE operations AS
SELECT entry, timestamp_ms, generate_subscripts(ops, 1) AS number, unnest(ops) AS op, unnest(ops)->>'operation' AS name
FROM (SELECT entry, timestamp_ms, (document->'operations')::JSON[] AS ops FROM documents WHERE entry >= getvariable('first_entry'));

INSERT INTO problems SELECT '5: an operation of a later version', name FROM operations WHERE name NOT IN ('upgrade', 'create_topic', 'alter_topic',
    'init_producer', 'allocate_producer_ids', 'append', 'stage', 'prepare_txn', 'end_txn', 'give_up', 'app_version', 'checkpoint', 'seal', 'spill', 'expire',
    'trim', 'vacuum_mark', 'delete_topic', 'replace', 'request_erasure', 'advance_erasure', 'complete_erasure', 'abandon_erasure', 'join_group',
    'commit_offsets', 'delete_group', 'create_subscription', 'delete_subscription', 'ack');
INSERT INTO problems SELECT '9: a feature that readers need', f FROM (
    SELECT unnest(from_json(op->'reader', '["VARCHAR"]')) AS f FROM operations WHERE name = 'upgrade')
WHERE f NOT IN ('base-1', 'lifecycle-1', 'embedding-1', 'columns-1');
INSERT INTO problems SELECT '5.3: an outcome or a cause of a later version', 'entry ' || entry FROM operations
WHERE name = 'end_txn' AND (op->>'outcome' NOT IN ('commit', 'abort') OR op->>'cause' NOT IN ('producer', 'timeout', 'operator'));

-- 10: snapshots that a checkpoint names, the newest first. The glue takes the first one that is whole, or none.
CREATE TABLE checkpoints AS
SELECT (op->>'entry')::BIGINT AS entry, op->>'key' AS key, (op->>'size')::BIGINT AS size, op->>'sha256' AS sha256, op->>'digest' AS digest
FROM operations WHERE name = 'checkpoint' ORDER BY entry DESC;

-- Sections of snapshots and spills: the rows of one object, in their order. The snapshot's `object` is empty.
CREATE TABLE sectioned (object VARCHAR, section VARCHAR, data BLOB);
CREATE TABLE section_partitions (object VARCHAR, ordinal BIGINT, topic_id VARCHAR, partition INT, extents BIGINT, markers BIGINT, aborted BIGINT, segments BIGINT);
CREATE TABLE section_extents (object VARCHAR, ordinal BIGINT, base_offset BIGINT, records BIGINT, producer_id BIGINT, epoch BIGINT, base_sequence BIGINT,
    entry BIGINT, timestamp_ms BIGINT, min_timestamp_ms BIGINT, max_timestamp_ms BIGINT, size BIGINT, file BIGINT, "table" BIGINT, first_file BIGINT,
    section INT, row_group INT, row_group_count INT, batch_count INT, transactional INT, file_count INT);
CREATE TABLE section_markers (object VARCHAR, ordinal BIGINT, "offset" BIGINT, producer_id BIGINT, epoch BIGINT, commit INT, reserved INT, entry BIGINT, timestamp_ms BIGINT);
CREATE TABLE section_aborted (object VARCHAR, ordinal BIGINT, producer_id BIGINT, epoch BIGINT, first_offset BIGINT, last_offset BIGINT, last_stable_offset BIGINT, entry BIGINT);
CREATE TABLE section_segments (object VARCHAR, ordinal BIGINT, start_offset BIGINT, end_offset BIGINT, segment BIGINT, batches BIGINT, markers BIGINT,
    first_aborted BIGINT, aborted BIGINT, records BIGINT, size BIGINT, aborted_records BIGINT, aborted_size BIGINT, min_timestamp_ms BIGINT, max_timestamp_ms BIGINT);
CREATE TABLE section_files (object VARCHAR, ordinal BIGINT, number BIGINT, key VARCHAR, size BIGINT, sha256 VARCHAR, footer_bytes BIGINT, footer_sha256 VARCHAR,
    rows BIGINT, schema_id INT);
CREATE TABLE section_tables (object VARCHAR, ordinal BIGINT, number BIGINT, key VARCHAR, size BIGINT, sha256 VARCHAR);
-- The snapshot's state; an empty one at first: then the entries are folded from 0 on.
CREATE TABLE snapshot (object VARCHAR, ordinal BIGINT, state JSON);
-- Rows of batch tables (5.2), of segment lists and of their roots, and of sidecars (6.6), each with the key of its object.
CREATE TABLE table_rows (object VARCHAR, ordinal BIGINT, section INT, partition INT, file INT, row_group INT, row_group_count INT, records BIGINT, size BIGINT,
    min_timestamp_ms BIGINT, max_timestamp_ms BIGINT);
CREATE TABLE root_rows (object VARCHAR, ordinal BIGINT, first_topic_id VARCHAR, first_partition INT, last_topic_id VARCHAR, last_partition INT, rows BIGINT, key VARCHAR,
    size BIGINT, sha256 VARCHAR);
CREATE TABLE list_rows (object VARCHAR, ordinal BIGINT, topic_id VARCHAR, partition INT, start_offset BIGINT, end_offset BIGINT, segment BIGINT, batches BIGINT,
    markers BIGINT, first_aborted BIGINT, aborted BIGINT, records BIGINT, size BIGINT, aborted_records BIGINT, aborted_size BIGINT, min_timestamp_ms BIGINT,
    max_timestamp_ms BIGINT, index_key VARCHAR, index_size BIGINT, index_sha256 VARCHAR, markers_key VARCHAR, markers_size BIGINT, markers_sha256 VARCHAR,
    txnindex_key VARCHAR, txnindex_size BIGINT, txnindex_sha256 VARCHAR);
CREATE TABLE index_rows (object VARCHAR, ordinal BIGINT, partition INT, outcome INT, base_offset BIGINT, records BIGINT, producer_id BIGINT, epoch BIGINT,
    base_sequence BIGINT, transactional INT, row_group INT, row_group_count INT, file BIGINT, size BIGINT, min_timestamp_ms BIGINT, max_timestamp_ms BIGINT,
    entry BIGINT, timestamp_ms BIGINT, commit_entry BIGINT, file_key VARCHAR, file_size BIGINT, file_sha256 VARCHAR, file_footer_bytes BIGINT,
    file_footer_sha256 VARCHAR, file_rows BIGINT, file_schema_id BIGINT);
CREATE TABLE runs_rows (object VARCHAR, ordinal BIGINT, partition INT, row_group INT, row_group_count INT, start_offset BIGINT, end_offset BIGINT, records BIGINT,
    file BIGINT, size BIGINT, min_timestamp_ms BIGINT, max_timestamp_ms BIGINT, min_entry BIGINT, max_entry BIGINT, min_commit_entry BIGINT, max_commit_entry BIGINT,
    min_log_ms BIGINT, max_log_ms BIGINT, file_key VARCHAR, file_size BIGINT, file_sha256 VARCHAR, file_footer_bytes BIGINT, file_footer_sha256 VARCHAR,
    file_rows BIGINT, file_schema_id BIGINT);
-- Objects that the glue has fetched; `wanted` says which come next.
CREATE TABLE fetched (key VARCHAR, content BLOB);
