-- The chain of commit entries: specification, sections 2 to 4. Every entry is at first only bytes: those of its slot, or, below the
-- boundary, those in a bundle. The variable root is the path of the log. Each INSERT INTO problems is a MUST of the specification.
SET TimeZone = 'UTC';
PRAGMA disable_optimizer; -- planning these statements takes longer than running them
CREATE TABLE problems (rule VARCHAR, place VARCHAR);
CREATE TABLE format AS SELECT content FROM read_blob(getvariable('root') || '/_txnlog/format.json');
INSERT INTO problems SELECT '2: one format.json of format 1', 'format.json' WHERE (SELECT count(*) FROM format) <> 1
    OR (SELECT any_value((decode(content)::JSON->>'format')::INT) FROM format) <> 1;
SET VARIABLE log_id = (SELECT decode(content)::JSON->>'log_id' FROM format);

-- 5.18: the highest boundary counts. Entries below it are in bundles; a slot below it counts where there is no bundle.
SET VARIABLE boundary = (SELECT coalesce(max(regexp_extract(file, '/(\d{20})$', 1)::BIGINT), 0)
    FROM glob(getvariable('root') || '/_txnlog/boundary/*') WHERE regexp_matches(file, '/\d{20}$'));

-- 6.7: 8 bytes, then for each entry its length (big-endian, 32 bits) and its bytes.
CREATE TABLE bundled AS
WITH RECURSIVE
bundles AS (
    SELECT regexp_extract(filename, '/(\d{20})-\d{20}$', 1)::BIGINT AS first, content
    FROM read_blob(getvariable('root') || '/_txnlog/bundles/*') WHERE regexp_matches(filename, '/\d{20}-\d{20}$')
),
cut AS (
    SELECT first, 0 AS i, NULL::BLOB AS bytes, content[9:] AS rest FROM bundles
    WHERE content[:8] = 'TXNLOGB1'::BLOB AND first < getvariable('boundary')
    UNION ALL
    SELECT first, i + 1, rest[5:4 + ('0x' || hex(rest[:4]))::BIGINT], rest[5 + ('0x' || hex(rest[:4]))::BIGINT:]
    FROM cut WHERE octet_length(rest) > 4 AND i < 100
)
SELECT first + i - 1 AS entry, bytes FROM cut
WHERE i > 0 AND first IN (SELECT first FROM cut WHERE i = 100 AND octet_length(rest) = 0);

CREATE TABLE stored AS
WITH slots AS (
    SELECT regexp_extract(filename, '/(\d{20})\.json$', 1)::BIGINT AS entry, content AS bytes
    FROM read_blob(getvariable('root') || '/_txnlog/log/*') WHERE regexp_matches(filename, '/\d{20}\.json$')
)
SELECT entry, bytes, true AS in_slot FROM slots WHERE entry >= getvariable('boundary') OR entry NOT IN (SELECT entry FROM bundled)
UNION ALL SELECT entry, bytes, false FROM bundled WHERE entry < getvariable('boundary');

-- 4.2: head, payload, size of the payload (big-endian, 32 bits), TXNLROWS. 4.1: a compressed head begins with the four bytes of zstd;
-- the frame is its last 40 bytes.
CREATE TABLE heads AS
WITH ends AS (
    SELECT *, CASE WHEN in_slot AND bytes[-8:] = 'TXNLROWS'::BLOB THEN ('0x' || hex(bytes[-12:-9]))::BIGINT END AS payload_size FROM stored
),
parts AS (
    SELECT entry, in_slot, octet_length(bytes) AS size, payload_size,
        CASE WHEN payload_size IS NULL THEN bytes ELSE bytes[:octet_length(bytes) - 12 - payload_size] END AS head,
        CASE WHEN payload_size IS NOT NULL THEN bytes[octet_length(bytes) - 11 - payload_size:octet_length(bytes) - 12] END AS payload
    FROM ends
)
SELECT *, head[:4] = '\x28\xB5\x2F\xFD'::BLOB AS is_compressed,
    octet_length(head) > 40 AND head[-40:-33] = '\x57\x2A\x4D\x18\x20\x00\x00\x00'::BLOB AS is_framed,
    CASE WHEN octet_length(head) > 40 AND head[-40:-33] = '\x57\x2A\x4D\x18\x20\x00\x00\x00'::BLOB
        THEN head[:octet_length(head) - 40] ELSE head END AS body
FROM parts;

-- The glue fills in what the compressed bodies decompress to.
CREATE TABLE plain (entry BIGINT, bytes BLOB);
INSERT INTO plain SELECT entry, body FROM heads WHERE NOT is_compressed;
