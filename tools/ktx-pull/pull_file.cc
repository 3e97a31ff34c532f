#include "tools/ktx-pull/pull_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lib/support/sha256.h"
#include "lib/support/strings.h"
#include "lib/support/work_file.h"
#include "tools/ktx-pull/range_fetch.h"

namespace ktx::tools {
namespace {

constexpr uint64_t kLeastPart = 64 << 10;
constexpr uint64_t kMostParts = 1 << 18;
constexpr size_t kReadBytes = 1 << 20;
constexpr uint64_t kMostHashedBetween = 256 << 20;

struct Mark {
  char magic[8];
  char sha256[64];
  uint64_t file_bytes;
  uint64_t part_bytes;
};
static_assert(sizeof(Mark) == 88);

std::span<const std::byte> bytes_of(const Mark& mark) {
  return std::as_bytes(std::span(&mark, 1));
}

class Pull {
 public:
  Pull(WorkFile& work, const HubFile& file, const PullSettings& settings)
      : work_(work), file_(file), settings_(settings) {
    part_bytes_ = std::max({settings.part_bytes, kLeastPart, file.bytes / kMostParts + 1});
    std::memcpy(mark_.magic, "KTXPULL1", sizeof mark_.magic);
    std::memcpy(mark_.sha256, file.sha256.data(), sizeof mark_.sha256);
    mark_.file_bytes = file.bytes;
    mark_.part_bytes = part_bytes_;
    done_.assign((file.bytes + part_bytes_ - 1) / part_bytes_, 0);
  }

  // What an earlier pull has left, or an empty file.
  Status begin(bool resume) {
    if (resume && take_over()) return {};
    std::ranges::fill(done_, 0);
    KTX_TRY(work_.truncate(0));
    KTX_TRY(work_.reserve(journal_at() + done_.size()));
    KTX_TRY(work_.write(file_.bytes, bytes_of(mark_)));
    return {};
  }
  bool resumed() const { return resumed_; }

  Status fetch(const Hub& hub, const std::string& url) {
    std::vector<ByteRange> parts;
    for (size_t i = 0; i < done_.size(); ++i) {
      const ByteRange range{i * part_bytes_, std::min(file_.bytes, (i + 1) * part_bytes_)};
      if (done_[i] == 0) parts.push_back(range);
      if (done_[i] != 0) settings_.arrived(range.end - range.begin);
    }
    RangeSink sink;
    sink.write = [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
      KTX_TRY(work_.write(offset, bytes));
      settings_.arrived(bytes.size());
      return {};
    };
    sink.finished = [&](ByteRange range) -> Status {
      const std::byte yes{1};
      const uint64_t part = range.begin / part_bytes_;
      KTX_TRY(work_.write(journal_at() + part, {&yes, 1}));
      done_[part] = 1;
      return hash_beginning();
    };
    return fetch_ranges(hub, url, file_.path, file_.bytes, parts, settings_.connections, sink);
  }

  Result<bool> is_right() {
    settings_.checked(hashed_);
    while (hashed_ < file_.bytes) settings_.checked(KTX_TRY(hash_piece(file_.bytes)));
    return to_hex(KTX_TRY(hash_.digest())) == file_.sha256;
  }

 private:
  uint64_t journal_at() const { return file_.bytes + sizeof(Mark); }

  // While the rest arrives: parts come about in order, and are in memory still.
  Status hash_beginning() {
    uint64_t end = hashed_;
    for (uint64_t part = end / part_bytes_; part < done_.size() && done_[part] != 0; ++part) {
      end = std::min(file_.bytes, (part + 1) * part_bytes_);
    }
    // Much of it was there before a break; connections do not wait for that.
    end = std::min(end, hashed_ + kMostHashedBetween);
    while (hashed_ < end) KTX_TRY(hash_piece(end));
    return {};
  }

  // Returns how much more it is.
  Result<uint64_t> hash_piece(uint64_t end) {
    const auto piece = std::span(read_).first(std::min<uint64_t>(read_.size(), end - hashed_));
    KTX_TRY(work_.read(hashed_, piece));
    hash_.add(piece);
    hashed_ += piece.size();
    return piece.size();
  }

  bool take_over() {
    if (work_.size() == file_.bytes) {  // all has come, and the journal is cut off already
      std::ranges::fill(done_, 1);
      return resumed_ = true;
    }
    if (work_.size() != journal_at() + done_.size()) return false;
    Mark mark = {};
    if (!work_.read(file_.bytes, std::as_writable_bytes(std::span(&mark, 1))).ok() ||
        std::memcmp(&mark, &mark_, sizeof mark) != 0 ||
        !work_.read(journal_at(), std::as_writable_bytes(std::span(done_))).ok()) {
      return false;
    }
    resumed_ = true;
    return true;
  }

  WorkFile& work_;
  const HubFile& file_;
  const PullSettings& settings_;
  uint64_t part_bytes_ = 0;
  Mark mark_ = {};
  std::vector<uint8_t> done_;  // by part
  Sha256 hash_;                // of the first `hashed_` bytes
  uint64_t hashed_ = 0;
  std::vector<std::byte> read_ = std::vector<std::byte>(kReadBytes);
  bool resumed_ = false;
};

// The time of the file's change follows from its content, so that the same file, pulled again, is
// the model of the plan that is there (content_key, lib/plan_cache/model_files.h).
int64_t time_of(const std::string& sha256) {
  constexpr int64_t kYear = 365 * 24 * 3600;
  uint32_t number = 0;
  std::from_chars(sha256.data(), sha256.data() + std::min<size_t>(sha256.size(), 8), number, 16);
  return 10 * kYear + number % (20 * kYear);
}

// A kill may have left the file with its name, and without the note that it is there.
Result<bool> is_there(const std::string& path, const HubFile& file, const PullSettings& settings) {
  std::error_code missing;
  if (std::filesystem::file_size(path, missing) != file.bytes || missing) return false;
  std::ifstream in(path, std::ios::binary);
  std::vector<char> piece(kReadBytes);
  Sha256 hash;
  while (in.read(piece.data(), std::ssize(piece)) || in.gcount() > 0) {
    hash.add(std::as_bytes(std::span(piece).first(static_cast<size_t>(in.gcount()))));
    settings.checked(static_cast<uint64_t>(in.gcount()));
  }
  if (to_hex(KTX_TRY(hash.digest())) != file.sha256) return false;
  settings.arrived(file.bytes);
  return true;
}

}  // namespace

Status pull_file(const Hub& hub, const std::string& url, const HubFile& file,
                 const std::string& path, const PullSettings& settings) {
  if (KTX_TRY(is_there(path, file, settings))) return {};
  WorkFile work = KTX_TRY(WorkFile::open(path, "GGUF", 0600));
  work.leave();
  for (const bool resume : {true, false}) {
    Pull pull(work, file, settings);
    KTX_TRY(pull.begin(resume));
    if (const Status fetched = pull.fetch(hub, url); !fetched) {
      return Error{fetched.error().message +
                   "; what has arrived is kept, and the next start continues from it"};
    }
    if (KTX_TRY(pull.is_right())) {
      KTX_TRY(work.truncate(file.bytes));
      // Before the file has its name, at which a kill may leave it. Without it there is a second
      // plan, nothing else.
      (void)work.set_written(time_of(file.sha256));
      return work.commit();
    }
    // A crash of the machine may have lost bytes that the journal has: once more, all of it.
    if (!pull.resumed()) break;
  }
  work.leave(false);
  return Error{
      fmt::format("{}: the bytes that came are not those of the hub's list (SHA-256 {}); nothing "
                  "of them is kept; start again, or name another hub (HF_ENDPOINT)",
                  printable(file.path), file.sha256)};
}

}  // namespace ktx::tools
