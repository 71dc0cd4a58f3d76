-- What `lockstepctl projection ddl engagement.yaml` prints.
CREATE SCHEMA IF NOT EXISTS engagement_read;

CREATE TABLE engagement_read.user_video (
  user_id text NOT NULL,
  video_id text NOT NULL,
  watched_seconds bigint,
  liked boolean,
  version bigint NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (user_id, video_id)
);

CREATE TABLE engagement_read.video_counts (
  video_id text NOT NULL,
  views bigint NOT NULL DEFAULT 0,
  watch_seconds bigint NOT NULL DEFAULT 0,
  likes bigint NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (video_id)
);
