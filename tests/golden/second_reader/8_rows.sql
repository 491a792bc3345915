-- The records of one topic in files of one form and one version of its schema; the glue puts names into the braces, as columns those of the newest version.
-- Offsets and metadata of batches are what the log says of them; compacted files have their own (6.1, 6.3).
SELECT r.partition::INT AS _partition,
    {offset} AS _offset,
    {timestamp} AS _timestamp,
    {producer_id} AS _producer_id,
    {producer_epoch} AS _producer_epoch,
    {entry} AS _entry,
    {commit_entry} AS _commit_entry,
    {columns}
FROM read_parquet({paths}, filename = '_txnlog_file', file_row_number = true) f
    JOIN runs r ON r.path = f._txnlog_file AND f.file_row_number >= r.first_row AND f.file_row_number < r.first_row + r.records
WHERE r.topic_id = {topic} AND {offset} >= r.low AND {offset} < r.high
