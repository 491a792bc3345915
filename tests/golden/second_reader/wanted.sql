-- Which objects come next: those of the view `wanted` that are not there yet. Section 2: no other keys than these are ever followed.
INSERT INTO problems SELECT '2: a key', key FROM wanted
WHERE NOT regexp_full_match(key, '(_txnlog/tables/U\.arrow|[^/]+-[0-9a-f]{8}/(data/U\.parquet|segments/U\.(index|runs|txnindex)))'
    .replace('U', '\d{20}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'));
CREATE OR REPLACE TABLE next AS SELECT * FROM wanted WHERE key NOT IN (SELECT key FROM fetched);
SET VARIABLE paths = (SELECT list(getvariable('root') || '/' || key) FROM next);
