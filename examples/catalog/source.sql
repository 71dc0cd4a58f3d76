-- The catalogue service's own tables: what other services may not read, and learn about by events.
CREATE SCHEMA catalog;

CREATE TABLE catalog.video (
  video_id uuid PRIMARY KEY,
  uploader_id text NOT NULL,
  title text NOT NULL,
  description text NOT NULL,
  duration_seconds bigint NOT NULL,
  published_at timestamptz NOT NULL,
  deleted_at timestamptz,
  version bigint NOT NULL
);
