#include "lib/plan_cache/model_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lib/support/file_stamp.h"
#include "lib/support/hash.h"
#include "lib/support/shard_names.h"
#include "lib/support/strings.h"

namespace ktx::plan_cache {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHead = 1 << 20;
constexpr uint64_t kSamples = 64;
constexpr uint32_t kMostShards = 4096;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Status add_part(int fd, const std::string& path, uint64_t offset, uint64_t size, Hasher& hasher) {
  std::vector<std::byte> bytes(size);
  uint64_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(fd, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{fmt::format("{}: cannot read: {}", path, std::strerror(errno))};
    if (got == 0) break;  // became smaller: the size in the key is of before
    done += static_cast<uint64_t>(got);
  }
  hasher.add(std::span(bytes).first(done));
  return {};
}

Status add_samples(int fd, const std::string& path, uint64_t size, Hasher& hasher) {
  KTX_TRY(add_part(fd, path, 0, std::min(size, kHead), hasher));
  if (size <= kHead) return {};
  const uint64_t step = std::max((size - kHead) / kSamples / kPage, uint64_t{1}) * kPage;
  for (uint64_t at = kHead; at < size; at += step) {
    KTX_TRY(add_part(fd, path, at, std::min(kPage, size - at), hasher));
  }
  return add_part(fd, path, size - kPage, kPage, hasher);
}

Status add_file(const std::string& path, bool quick, Hasher& hasher) {
  const FileStamp stamp = KTX_TRY(stamp_file(path));
  hasher.add(bytes_of(stamp.size));
  hasher.add(bytes_of(stamp.modified_ns));
  if (quick) {
    hasher.add(bytes_of(stamp.device));
    hasher.add(bytes_of(stamp.inode));
    hasher.add(bytes_of(stamp.changed_ns));
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
  const Status added = quick ? add_part(fd, path, 0, std::min(stamp.size, kPage), hasher)
                             : add_samples(fd, path, stamp.size, hasher);
  close(fd);
  return added;
}

Result<std::string> key(std::span<const std::string> files, bool quick) {
  Hasher hasher;
  for (const std::string& path : files) KTX_TRY(add_file(path, quick, hasher));
  return to_hex(hasher.digest());
}

}  // namespace

std::vector<std::string> files_of_model(const std::string& path) {
  const auto shard = parse_shard_name(path);
  if (!shard || shard->count < 2 || shard->count > kMostShards) return {path};
  std::vector<std::string> files;
  for (uint32_t i = 1; i <= shard->count; ++i) files.push_back(shard_path(*shard, i));
  return files;
}

Result<std::string> quick_key(std::span<const std::string> files) {
  return key(files, true);
}
Result<std::string> content_key(std::span<const std::string> files) {
  return key(files, false);
}

uint64_t size_of(std::span<const std::string> files) {
  uint64_t bytes = 0;
  for (const std::string& path : files) {
    std::error_code missing;
    const uint64_t size = std::filesystem::file_size(path, missing);
    if (!missing) bytes += size;
  }
  return bytes;
}

std::string name_of_model(const std::string& path) {
  constexpr size_t kLongest = 150;  // ".ktxplan.drafter.work" has room behind it
  const auto shard = parse_shard_name(path);
  std::string name = std::filesystem::path(shard ? shard->prefix : path).filename().string();
  if (!shard && name.ends_with(".gguf")) name.resize(name.size() - 5);
  const bool unfit = name.empty() || name.front() == '.';
  return unfit ? "model" : printable(name, kLongest);
}

}  // namespace ktx::plan_cache
