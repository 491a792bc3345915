-- 3, 6.6: an object has exactly the size and the hash that it was named with; both are compared before it is parsed.
INSERT INTO fetched SELECT substr(filename, length(getvariable('root')) + 2), content FROM read_blob(getvariable('paths'));
INSERT INTO problems SELECT '3: size and sha256 of an object', key FROM next LEFT JOIN fetched USING (key)
WHERE content IS NULL OR octet_length(content) <> size OR sha256(content) <> next.sha256;
CREATE OR REPLACE VIEW arrived AS SELECT key, kind, content FROM next JOIN fetched USING (key);
