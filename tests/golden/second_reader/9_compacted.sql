-- Records of compacted files: offsets and all metadata are columns there (6.1).
SELECT f._partition, f._offset, f._timestamp, f._producer_id, f._producer_epoch, f._entry, f._commit_entry,
    {columns}
FROM read_parquet({paths}, filename = '_txnlog_file', file_row_number = true) f
    JOIN runs r ON r.path = f._txnlog_file AND f.file_row_number >= r.first_row AND f.file_row_number < r.first_row + r.records
WHERE r.topic_id = '{topic}' AND f._partition = r.partition AND f._offset >= r.low AND f._offset < r.high
