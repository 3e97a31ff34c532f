// Writes a small output in one go.
//
//   KTX_TRY(write_file("report.html", "<!doctype html>", html));
//   KTX_TRY(replace_file("rules.yaml", "", fixed));
//
// A file appears as a whole or not at all, and replaces only an empty file or one that begins
// with `magic` (work_file.h; "" matches any). write_file() also writes to streams: pipes,
// terminals, /dev/null, /dev/stdout (output_place.h). A pipe without a reader is an error,
// never a wait; the caller ignores SIGPIPE.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

Status write_file(const std::string& path, std::string_view magic, std::string_view bytes);
// `mode` is that of a new file, less the umask; an old one keeps its own.
Status replace_file(const std::string& path, std::string_view magic, std::string_view bytes,
                    mode_t mode = 0666);

}  // namespace ktx
