-- For the scripts as they are sent to the server, each composed with its includes (see `make lint`).
std = "lua51"
max_line_length = 120
self = false

-- What a script finds in Redis and Valkey beside Lua 5.1's own libraries. There is no io, os only has clock.
read_globals = { "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit" }
not_globals = { "io", "package", "require", "dofile", "loadfile", "print", "module", "debug" }

-- A composed script holds more of its includes than it calls. Names that a verb itself leaves unused are found by a
-- second run over lua/*.lua alone.
ignore = { "211" }
