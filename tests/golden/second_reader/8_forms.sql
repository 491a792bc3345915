-- One statement per topic: an empty table with the metadata columns (6.3) and the columns of its newest schema, and with it, BY NAME, the
-- rows of the files of each form and version, by 9_batches.sql or 9_compacted.sql.
CREATE TABLE metadata (_partition INTEGER, _offset BIGINT, _timestamp TIMESTAMPTZ, _producer_id BIGINT, _producer_epoch BIGINT, _entry BIGINT,
    _commit_entry BIGINT);
CREATE TABLE empties AS
SELECT name, topic_id, 'SELECT m.*, ' || string_agg('NULL::' || type || ' AS ' || quoted, ', ' ORDER BY i) || ' FROM metadata m' AS empty
FROM newest JOIN columns USING (topic_id) GROUP BY ALL;
-- A version has the first columns of the newest one (5.4), perhaps with narrower types.
CREATE TABLE forms AS
SELECT topic_id, CASE WHEN is_compacted THEN '9_compacted.sql' ELSE '9_batches.sql' END AS template, {
    'topic': topic_id,
    'paths': paths,
    'columns': (SELECT string_agg('CAST(f.' || c.quoted || ' AS ' || c.type || ') AS ' || c.quoted, ', ' ORDER BY c.i) FROM columns c
        WHERE c.topic_id = v.topic_id AND c.i <= json_array_length(v.fields)),
    'timestamp': coalesce('f."' || replace(timestamp_column, '"', '""') || '"::TIMESTAMPTZ', 'make_timestamptz(r.timestamp_ms * 1000)')
} AS values
FROM (
    SELECT topic_id, is_compacted, fields, list(DISTINCT path) AS paths
    FROM reads JOIN file_checks USING (file_key) JOIN schemas s USING (topic_id) WHERE s.schema_id = file_schema_id GROUP BY ALL
) v JOIN (SELECT topic_id, timestamp_column FROM newest) USING (topic_id);
