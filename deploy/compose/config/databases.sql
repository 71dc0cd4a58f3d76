-- Beside catalog, which the image makes: the consuming service's database and its read model.
CREATE DATABASE feed;
\connect feed
CREATE SCHEMA catalog_read;
CREATE TABLE catalog_read.videos (video_id uuid PRIMARY KEY, title text, version bigint NOT NULL, updated_at timestamptz NOT NULL);
