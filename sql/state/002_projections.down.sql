DROP TABLE projection_fields;
DROP TABLE row_versions;
