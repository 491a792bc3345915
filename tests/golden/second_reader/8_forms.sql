-- One statement per topic: an empty table with the metadata columns (6.3) and the columns of its newest schema, and with it, BY NAME, the
-- rows of the files of each form and version, by 9_batches.sql or 9_compacted.sql.
CREATE TABLE metadata (_partition INTEGER, _offset BIGINT, _timestamp TIMESTAMPTZ, _producer_id BIGINT, _producer_epoch BIGINT, _entry BIGINT,
    _commit_entry BIGINT);
CREATE TABLE empties AS
SELECT name, topic_id, 'SELECT m.*, ' || string_agg('NULL::' || type || ' AS ' || quoted, ', ' ORDER BY i) || ' FROM metadata m' AS empty
FROM newest JOIN columns USING (topic_id) GROUP BY ALL;
-- A column of a file's version is the one of the newest version with the same place (5.4), perhaps with a narrower type and under another name.
CREATE VIEW newest_places AS FROM placed_columns WHERE (topic_id, schema_id) IN (SELECT (topic_id, max(schema_id)) FROM schemas GROUP BY topic_id);
CREATE TABLE forms AS
SELECT v.topic_id, CASE WHEN is_compacted THEN '9_compacted.sql' ELSE '9_batches.sql' END AS template, {
    'topic': v.topic_id,
    'paths': paths,
    'columns': (SELECT string_agg('CAST(f."' || replace(o.name, '"', '""') || '" AS ' || c.type || ') AS ' || c.quoted, ', ' ORDER BY c.i)
        FROM columns c JOIN newest_places n USING (topic_id, i) JOIN placed_columns o USING (topic_id, place)
        WHERE c.topic_id = v.topic_id AND o.schema_id = v.schema_id),
    'timestamp': coalesce((SELECT 'f."' || replace(o.name, '"', '""') || '"::TIMESTAMPTZ'
        FROM placed_columns t JOIN placed_columns o USING (topic_id, place)
        WHERE t.topic_id = v.topic_id AND t.schema_id = 0 AND t.name = w.timestamp_column AND o.schema_id = v.schema_id),
        'make_timestamptz(r.timestamp_ms * 1000)')
} AS values
FROM (
    SELECT topic_id, is_compacted, file_schema_id AS schema_id, list(DISTINCT path) AS paths
    FROM reads JOIN file_checks USING (file_key) JOIN schemas s USING (topic_id) WHERE s.schema_id = file_schema_id GROUP BY ALL
) v JOIN newest w USING (topic_id);
