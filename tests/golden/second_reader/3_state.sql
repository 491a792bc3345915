-- The state of the log (5, 6): from the snapshot, if the glue has taken one, and the operations of later entries. Of an
-- operation only what `read_committed` needs is looked at.
SET VARIABLE start = (SELECT coalesce(max((state->>'entry')::BIGINT), -1) FROM snapshot);
INSERT INTO problems SELECT '4: nothing names what is below the first entry', 'entry ' || getvariable('first_entry')
WHERE getvariable('first_entry') > getvariable('start') + 1;
INSERT INTO problems SELECT '10: entry_sha256', 'snapshot' FROM snapshot, documents
WHERE entry = getvariable('start') AND head_sha256 <> state->>'entry_sha256';
CREATE VIEW later AS SELECT * FROM operations WHERE entry > getvariable('start');

-- Topics (5, 5.4, 5.15). A schema's version counts from 0; records get the newest one.
CREATE TABLE topics AS
SELECT c->>'topic_id' AS topic_id, c->>'name' AS name, c->>'directory' AS directory, c->>'timestamp_column' AS timestamp_column, c->'fields' AS fields
FROM (SELECT unnest((state->'topics')::JSON[])->'create' AS c FROM snapshot UNION ALL SELECT op FROM later WHERE name = 'create_topic')
WHERE c->>'topic_id' NOT IN (SELECT op->>'topic_id' FROM later WHERE name = 'delete_topic');
-- `said`: what the version's operation says of places; null or empty: nothing.
CREATE TABLE schemas AS
SELECT topic_id, 0 AS schema_id, fields, NULL::BIGINT[] AS said FROM topics
UNION ALL
SELECT topic_id, v, versions[v], places[v]
FROM (SELECT *, unnest(generate_series(1, len(versions))) AS v FROM (
    SELECT t->'create'->>'topic_id' AS topic_id, (t->'schemas')::JSON[] AS versions, (t->'places')::BIGINT[][] AS places
    FROM (SELECT unnest((state->'topics')::JSON[]) AS t FROM snapshot)))
UNION ALL
SELECT op->>'topic_id', (op->>'schema_id')::INT, op->'fields', (op->'places')::BIGINT[] FROM later
WHERE name = 'alter_topic' AND json_type(op->'fields') = 'ARRAY';

-- Places (5.4): the columns of each version by their identity. `next`: the first place that no version so far has had.
CREATE TABLE version_places AS
WITH RECURSIVE placed AS (
    SELECT topic_id, schema_id, fields, range(json_array_length(fields)::BIGINT) AS places, json_array_length(fields)::BIGINT AS next
    FROM schemas WHERE schema_id = 0
    UNION ALL
    SELECT topic_id, schema_id, fields, places, greatest(next, list_max(places) + 1) FROM (
        SELECT s.topic_id, s.schema_id, s.fields, p.next, CASE WHEN len(s.said) > 0 THEN s.said
            ELSE p.places || range(p.next, p.next + json_array_length(s.fields)::BIGINT - len(p.places)) END AS places
        FROM placed p JOIN schemas s ON s.topic_id = p.topic_id AND s.schema_id = p.schema_id + 1)
)
SELECT topic_id, schema_id, fields, places FROM placed;
INSERT INTO problems SELECT '5.4: each column has a place', topic_id || ' version ' || schema_id FROM version_places
WHERE json_array_length(fields) <> len(places) OR places <> list_sort(list_distinct(places));
CREATE TABLE placed_columns AS
SELECT topic_id, schema_id, unnest(generate_series(1, len(places))) AS i, unnest(places) AS place, unnest(fields::JSON[])->>'name' AS name FROM version_places;

-- Partitions of the snapshot.
CREATE TABLE old_partitions AS
SELECT unnest(from_json(state->'partitions', '[{"topic_id": "VARCHAR", "partition": "INT", "log_start": "BIGINT", "log_end": "BIGINT", "sealed_end": "BIGINT",
    "open": [{"producer_id": "BIGINT", "epoch": "BIGINT", "first_offset": "BIGINT"}],
    "spills": [{"start_offset": "BIGINT", "end_offset": "BIGINT", "table": "BIGINT", "extents": "BIGINT", "markers": "BIGINT", "aborted": "BIGINT"}],
    "extents": "BIGINT", "markers": "BIGINT", "aborted": "BIGINT", "segments": "BIGINT"}]'), max_depth := 2) FROM snapshot;

-- Appends and stages: partitions, files, batches (5.2, 5.6).
CREATE TABLE appends AS
SELECT entry, number, timestamp_ms, entry || ':' || number AS object, op->>'topic_id' AS topic_id, (op->>'producer_id')::BIGINT AS producer_id,
    (op->>'epoch')::BIGINT AS epoch, op->>'transactional_id' AS transactional_id, name = 'stage' AS is_stage, (op->>'section')::INT AS section,
    op->'table'->>'key' AS table_key, (op->'table'->>'size')::BIGINT AS table_size, op->'table'->>'sha256' AS table_sha256,
    from_json(op->'partitions', '[{"partition": "INT", "base_offset": "BIGINT", "records": "BIGINT", "batch_count": "BIGINT"}]') AS parts,
    from_json(op->'batches', '[{"partition": "INT", "file": "INT", "row_group": "INT", "row_group_count": "INT", "records": "BIGINT"}]') AS batches,
    from_json(op->'files', '[{"key": "VARCHAR", "size": "BIGINT", "sha256": "VARCHAR", "footer_bytes": "BIGINT", "footer_sha256": "VARCHAR", "rows": "BIGINT",
        "schema_id": "INT"}]') AS files
FROM later WHERE name IN ('append', 'stage');
CREATE TABLE append_parts AS
SELECT * EXCLUDE (p), unnest(p) FROM (SELECT * EXCLUDE (parts, batches, files), unnest(parts) AS p FROM appends);

-- Markers (5.3): the old epoch's that init_producer aborts, of an end, of what a prepared transaction gives up (5.13).
CREATE TABLE ends AS
SELECT entry, number, timestamp_ms, name, op->>'transactional_id' AS transactional_id, (op->>'producer_id')::BIGINT AS producer_id,
    (op->>'epoch')::BIGINT - CASE WHEN name = 'init_producer' THEN 1 ELSE 0 END AS epoch, coalesce(op->>'outcome', 'abort') = 'commit' AS is_commit,
    from_json(coalesce(op->'markers', op->'aborted'), '[{"topic_id": "VARCHAR", "partition": "INT", "offset": "BIGINT"}]') AS markers,
    from_json(op->'placed', '[{"topic_id": "VARCHAR", "partition": "INT", "base_offset": "BIGINT", "records": "BIGINT"}]') AS placed
FROM later WHERE name IN ('end_txn', 'init_producer', 'give_up');
CREATE TABLE new_markers AS
SELECT m.topic_id, m.partition, m."offset" AS "offset", e.producer_id, e.epoch, e.is_commit, e.entry, e.number FROM ends e, unnest(e.markers) AS u(m);
CREATE TABLE placements AS
SELECT p.topic_id, p.partition, p.base_offset, p.records, e.transactional_id, e.producer_id, e.epoch, e.entry, e.number, e.timestamp_ms FROM ends e, unnest(e.placed) AS u(p);

-- Every append, placement and marker stands at the log end before it.
CREATE TABLE steps AS
SELECT topic_id, partition, start, start + n AS log_end, entry, number,
    lag(start + n) OVER (PARTITION BY topic_id, partition ORDER BY entry, number, is_marker) AS before
FROM (
    SELECT topic_id, partition, base_offset AS start, records AS n, entry, number, false AS is_marker FROM append_parts WHERE NOT is_stage
    UNION ALL SELECT topic_id, partition, base_offset, records, entry, number, false FROM placements
    UNION ALL SELECT topic_id, partition, "offset", 1, entry, number, true FROM new_markers
    UNION ALL SELECT topic_id, partition, 0, log_end, -1, 0, false FROM old_partitions
);
INSERT INTO problems SELECT '5.2, 5.3: the log end', 'entry ' || entry FROM steps WHERE start <> coalesce(before, 0);

-- What transactions have begun in a partition, and what is open: begun without a marker behind it (5.3).
CREATE TABLE begun AS
SELECT topic_id, partition, producer_id, epoch, min(first_offset) AS first_offset FROM (
    SELECT topic_id, partition, base_offset AS first_offset, producer_id, epoch FROM append_parts WHERE transactional_id IS NOT NULL AND NOT is_stage
    UNION ALL SELECT topic_id, partition, o.first_offset, o.producer_id, o.epoch FROM old_partitions, unnest(open) AS u(o)
) GROUP BY ALL;
CREATE TABLE open_transactions AS SELECT * FROM begun ANTI JOIN new_markers USING (topic_id, partition, producer_id, epoch);

-- Sealed segments (5.5), numbered over the life of the log, and their parts of partitions; segment lists; what replaces them (5.16).
CREATE TABLE seals AS
SELECT entry, number, from_json(op->'segments', '[{"topic_id": "VARCHAR", "index": {"key": "VARCHAR", "size": "BIGINT", "sha256": "VARCHAR"},
    "txnindex": {"key": "VARCHAR", "size": "BIGINT", "sha256": "VARCHAR"}, "partitions": [{"partition": "INT", "start_offset": "BIGINT", "end_offset": "BIGINT",
    "batches": "BIGINT", "aborted": "BIGINT", "records": "BIGINT"}]}]') AS segments,
    CASE WHEN json_type(op->'segment_list') = 'OBJECT' THEN op->'segment_list' END AS segment_list, (op->>'listed_segments')::BIGINT AS listed_segments
FROM later WHERE name = 'seal';
CREATE TABLE sealed_parts AS
WITH numbered AS (
    SELECT s, coalesce((SELECT (state->'sealed'->>'end')::BIGINT FROM snapshot), 0) + row_number() OVER (ORDER BY entry, number, i) - 1 AS segment
    FROM (SELECT entry, number, unnest(segments) AS s, generate_subscripts(segments, 1) AS i FROM seals)
),
parts AS (SELECT segment, s, unnest(s.partitions) AS p, generate_subscripts(s.partitions, 1) AS i FROM numbered),
kept AS (
    SELECT unnest(from_json(state->'sealed'->'segments', '[{"number": "BIGINT", "topic_id": "VARCHAR", "index": {"key": "VARCHAR", "size": "BIGINT",
        "sha256": "VARCHAR"}, "txnindex": {"key": "VARCHAR", "size": "BIGINT", "sha256": "VARCHAR"}}]')) AS s FROM snapshot
),
-- The rows of one partition after the other, in the order of the state's partitions, which say how many each has.
places AS (SELECT topic_id, partition, sum(segments) OVER (ORDER BY topic_id, partition) - segments AS first, segments AS n FROM old_partitions)
SELECT s.topic_id AS topic_id, p.partition AS partition, p.start_offset AS start_offset, p.end_offset AS end_offset, segment, p.batches AS batches, p.records AS records,
    coalesce(sum(p.aborted) OVER (PARTITION BY segment ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS first_aborted, p.aborted AS aborted,
    s.index.key AS index_key, s.index.size AS index_size, s.index.sha256 AS index_sha256,
    s.txnindex.key AS txnindex_key, s.txnindex.size AS txnindex_size, s.txnindex.sha256 AS txnindex_sha256
FROM parts
UNION ALL
SELECT a.topic_id, a.partition, r.start_offset, r.end_offset, r.segment, r.batches, r.records, r.first_aborted, r.aborted, k.s.index.key, k.s.index.size, k.s.index.sha256,
    k.s.txnindex.key, k.s.txnindex.size, k.s.txnindex.sha256
FROM section_segments r JOIN places a ON r.ordinal >= a.first AND r.ordinal < a.first + a.n JOIN kept k ON k.s.number = r.segment;

SET VARIABLE listed_segments = coalesce((SELECT arg_max(listed_segments, (entry, number)) FROM seals WHERE segment_list IS NOT NULL),
    (SELECT (state->>'listed_segments')::BIGINT FROM snapshot), 0);
-- A new list takes the place of those that begin where it begins, or later; that of a replace takes the place of one.
CREATE TABLE lists AS
WITH named AS (
    SELECT entry, number, segment_list AS list, true AS is_seal FROM seals WHERE segment_list IS NOT NULL
    UNION ALL SELECT entry, number, unnest((op->'lists')::JSON[])->'segment_list', false FROM later WHERE name = 'replace'
    UNION ALL SELECT -1, 0, unnest((state->'older_lists')::JSON[]), false FROM snapshot
    UNION ALL SELECT -1, 0, state->'segment_list', false FROM snapshot WHERE json_type(state->'segment_list') = 'OBJECT'
),
typed AS (
    SELECT entry, number, is_seal, list->>'key' AS key, (list->>'size')::BIGINT AS size, list->>'sha256' AS sha256, coalesce((list->>'first')::BIGINT, 0) AS first,
        coalesce((list->>'leaves')::BIGINT, 0) AS leaves, (list->>'rows')::BIGINT AS rows FROM named
)
SELECT * FROM typed t
WHERE key NOT IN (SELECT l->>'replaced' FROM (SELECT unnest((op->'lists')::JSON[]) AS l FROM later WHERE name = 'replace'))
    AND NOT EXISTS (SELECT 1 FROM typed n WHERE n.is_seal AND n.first <= t.first AND (n.entry, n.number) > (t.entry, t.number));

CREATE TABLE partitions AS
WITH starts AS (
    SELECT topic_id, partition, max(log_start) AS log_start FROM (
        SELECT topic_id, partition, log_start FROM old_partitions
        UNION ALL SELECT op->>'topic_id', p.partition, p.log_start FROM later, unnest(from_json(op->'partitions', '[{"partition": "INT", "log_start": "BIGINT"}]')) AS u(p)
        WHERE name = 'trim'
    ) GROUP BY ALL
),
sealed AS (
    SELECT topic_id, partition, max(end_offset) AS sealed_end FROM (
        SELECT topic_id, partition, sealed_end AS end_offset FROM old_partitions UNION ALL SELECT topic_id, partition, end_offset FROM sealed_parts
    ) GROUP BY ALL
),
ends AS (SELECT topic_id, partition, max(log_end) AS log_end FROM steps GROUP BY ALL),
held AS (SELECT topic_id, partition, min(first_offset) AS first_offset FROM open_transactions GROUP BY ALL)
SELECT topic_id, partition, coalesce(log_start, 0) AS log_start, coalesce(sealed_end, 0) AS sealed_end,
    greatest(coalesce(first_offset, log_end), coalesce(log_start, 0)) AS lso, log_end
FROM ends LEFT JOIN starts USING (topic_id, partition) LEFT JOIN sealed USING (topic_id, partition) LEFT JOIN held USING (topic_id, partition)
WHERE topic_id IN (SELECT topic_id FROM topics);
INSERT INTO problems SELECT '5.13: log start <= sealed end <= LSO <= log end', topic_id || '/' || partition FROM partitions
WHERE log_start > sealed_end OR sealed_end > lso OR lso > log_end;

-- Spills (5.20): those that no later one has taken in, and that no seal has taken.
CREATE TABLE spills AS
WITH named AS (
    SELECT op->'table'->>'key' AS key, (op->'table'->>'size')::BIGINT AS size, op->'table'->>'sha256' AS sha256, unnest(from_json(op->'partitions',
        '[{"topic_id": "VARCHAR", "partition": "INT", "start_offset": "BIGINT", "end_offset": "BIGINT", "extents": "BIGINT", "markers": "BIGINT", "aborted": "BIGINT",
        "replaced": ["VARCHAR"]}]')) AS p FROM later WHERE name = 'spill'
),
every AS (
    SELECT key, size, sha256, p.topic_id AS topic_id, p.partition AS partition, p.start_offset AS start_offset, p.end_offset AS end_offset, p.extents AS extents,
        p.markers AS markers, p.aborted AS aborted FROM named
    UNION ALL
    SELECT t.key, t.size, t.sha256, o.topic_id, o.partition, s.start_offset, s.end_offset, s.extents, s.markers, s.aborted
    FROM old_partitions o, unnest(o.spills) AS u(s) JOIN section_tables t ON t.number = s."table" AND t.object = ''
)
SELECT e.* FROM every e JOIN partitions USING (topic_id, partition)
WHERE e.end_offset > sealed_end AND NOT EXISTS (SELECT 1 FROM named n WHERE n.p.topic_id = e.topic_id AND n.p.partition = e.partition AND list_contains(n.p.replaced, e.key));

-- The first objects: segment lists, the leaves that their roots name, and spills of the partitions in which something can be read above
-- the sealed end (6.6).
CREATE VIEW wanted AS
SELECT DISTINCT key, size, sha256, 'list' AS kind FROM lists WHERE leaves = 0
UNION SELECT key, size, sha256, 'root' FROM lists WHERE leaves > 0
UNION SELECT key, size, sha256, 'list' FROM root_rows
UNION SELECT key, size, sha256, 'spill' FROM spills JOIN partitions USING (topic_id, partition) WHERE sealed_end < lso;
