PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS game (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, randomness BLOB NOT NULL, over INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS journal (id TEXT NOT NULL, board TEXT) STRICT;
CREATE TABLE IF NOT EXISTS said (
    number INTEGER PRIMARY KEY, game TEXT NOT NULL, topic TEXT NOT NULL, packet BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS said_in ON said (game, number);
CREATE TABLE IF NOT EXISTS told (
    number INTEGER PRIMARY KEY, game TEXT NOT NULL, slot INTEGER NOT NULL, topic TEXT NOT NULL, packet BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS told_in ON told (game, slot, number);
CREATE TABLE IF NOT EXISTS closed (game TEXT NOT NULL, slot INTEGER NOT NULL, PRIMARY KEY (game, slot)) STRICT;
CREATE TABLE IF NOT EXISTS held (
    game TEXT NOT NULL, name TEXT NOT NULL, tag BLOB NOT NULL, key BLOB NOT NULL, since REAL NOT NULL,
    PRIMARY KEY (game, name)
) STRICT;
-- A second board on the same journal would say other things under the same key.
PRAGMA locking_mode = EXCLUSIVE;
BEGIN IMMEDIATE;
INSERT INTO journal (id) SELECT lower(hex(randomblob(4))) WHERE NOT EXISTS (SELECT 1 FROM journal);
COMMIT;
