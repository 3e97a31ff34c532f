#include "lib/support/write_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "lib/support/output_place.h"
#include "lib/support/work_file.h"
#include "lib/support/write_failure.h"

namespace ktx {
namespace {

Status write_stream(const OutputPlace& place, std::string_view bytes) {
  const int fd = open_output(place, 0);
  int error = fd < 0 ? errno : write_all(fd, bytes);
  if (fd >= 0 && close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return {};
  return Error{fmt::format("{}: cannot write: {}", describe(place), write_failure(error))};
}

}  // namespace

Status write_file(const std::string& path, std::string_view magic, std::string_view bytes) {
  const OutputPlace place = KTX_TRY(find_output(path));
  if (place.kind == OutputPlace::Kind::Stream) return write_stream(place, bytes);
  return replace_file(path, magic, bytes);
}

Status replace_file(const std::string& path, std::string_view magic, std::string_view bytes,
                    mode_t mode) {
  WorkFile file = KTX_TRY(WorkFile::open(path, magic, mode));
  KTX_TRY(file.truncate(0));  // what a killed program left
  KTX_TRY(file.reserve(bytes.size()));
  KTX_TRY(file.write(0, std::as_bytes(std::span(bytes))));
  return file.commit();
}

}  // namespace ktx
