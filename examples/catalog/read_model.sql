-- The feed service's copy of the catalogue, which catalog.yaml fills.
CREATE SCHEMA catalog_read;

CREATE TABLE catalog_read.video_projection (
  video_id uuid PRIMARY KEY,
  uploader_id text,
  title text,
  description text,
  duration_seconds bigint,
  published_at timestamptz,
  deleted_at timestamptz,
  version bigint NOT NULL,
  updated_at timestamptz NOT NULL
);
