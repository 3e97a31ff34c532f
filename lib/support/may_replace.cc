#include "lib/support/may_replace.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

#include "lib/support/strings.h"

namespace ktx {

Status may_replace(const std::string& path, std::string_view magic) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  std::string begin(magic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(file.gcount()));
  if (begin == magic || info.st_size == 0) return {};
  return Error{
      fmt::format("{}: there is a file of this name that begins with '{}', not with '{}'; name "
                  "another file, or remove this one first",
                  path, printable(begin), magic)};
}

}  // namespace ktx
