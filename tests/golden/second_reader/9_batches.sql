-- Records of batches: their offsets are counted from the batch's first one, and all else about them is what the log says (6.1, 6.3).
SELECT r.partition::INT AS _partition,
    (r.base_offset + f.file_row_number - r.first_row)::BIGINT AS _offset,
    {timestamp} AS _timestamp,
    r.producer_id AS _producer_id,
    r.producer_epoch AS _producer_epoch,
    r.entry AS _entry,
    r.commit_entry AS _commit_entry,
    {columns}
FROM read_parquet({paths}, filename = '_txnlog_file', file_row_number = true) f
    JOIN runs r ON r.path = f._txnlog_file AND f.file_row_number >= r.first_row AND f.file_row_number < r.first_row + r.records
WHERE r.topic_id = '{topic}' AND r.base_offset + f.file_row_number - r.first_row >= r.low AND r.base_offset + f.file_row_number - r.first_row < r.high
