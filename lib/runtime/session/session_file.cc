#include "lib/runtime/session/session_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "lib/runtime/engine/images_of_pass.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/support/hash.h"
#include "lib/support/strings.h"
#include "lib/support/work_file.h"

namespace ktx::runtime {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'K', 'T', 'X', 'S', 'E', 'S', 'S', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxNoteBytes = 64u << 20;

struct SessionHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t plan_low, plan_high;  // PlanView::identity
  uint32_t kv_type;
  uint32_t precision;
  uint32_t block_tokens;
  uint32_t sampler_bytes;  // 0: none
  uint64_t tokens;
  uint64_t computed;
  uint64_t note_bytes;
  uint64_t kv_bytes;
  uint64_t window_begin;  // the first position that is here of layers with a window
  uint64_t state_bytes;   // of states of a fixed size, behind keys and values
  uint64_t begins[4];     // the same as window_begin of later kinds of blocks

  uint64_t& begin(SequenceKind kind) {
    return kind == SequenceKind::Window ? window_begin : begins[static_cast<size_t>(kind) - 2];
  }
};
static_assert(sizeof(SessionHeader) == 128);
static_assert(offsetof(SessionHeader, tokens) == 48);
static_assert(sizeof(SamplerState) == 40);
constexpr uint32_t kRandomBytes = 32;  // earlier files have no more of it
static_assert(offsetof(SamplerState, mirostat_bound) == kRandomBytes);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Writes pieces of any size one behind the other, and hashes what went through. The first
// failure stays, and nothing is written after it.
class HashedWriter {
 public:
  explicit HashedWriter(WorkFile& file) : file_(file) {}

  void write(const void* data, size_t size) {
    const std::span bytes(static_cast<const std::byte*>(data), size);
    hasher_.add(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kBufferBytes) flush();
  }
  Hash128 digest() const { return hasher_.digest(); }
  Status finish() {
    flush();
    return status_;
  }

 private:
  static constexpr size_t kBufferBytes = 1 << 20;

  void flush() {
    if (status_.ok()) status_ = file_.write(offset_, buffer_);
    offset_ += buffer_.size();
    buffer_.clear();
  }

  WorkFile& file_;
  std::vector<std::byte> buffer_;
  uint64_t offset_ = 0;
  Hasher hasher_;
  Status status_;
};

// Reads, and hashes what went through.
class HashedReader {
 public:
  HashedReader(File file, const std::string& path) : file_(std::move(file)), path_(path) {}

  Status read(void* data, size_t size) {
    if (size == 0) return {};
    if (std::fread(data, 1, size, file_.get()) != size) {
      return Error{fmt::format("{}: the file ends too early; it was cut off", path_)};
    }
    hasher_.add({static_cast<const std::byte*>(data), size});
    return {};
  }
  Hash128 digest() const { return hasher_.digest(); }
  std::FILE* get() { return file_.get(); }

 private:
  File file_;
  std::string path_;
  Hasher hasher_;
};

Status visit_rows(Engine& engine, const Sequence& sequence, bool write, const VisitRows& call) {
  return engine.runner().visit_kv(sequence.tables(), sequence.length(), write, call);
}

// A file does not say which adapters its keys and values were computed with.
Status check_no_adapters(const Sequence& sequence) {
  if (sequence.lora().empty()) return {};
  return Error{"a text computed with adapters (--lora) cannot be saved to or restored from a file"};
}

// Their ids are those of this run (images/image_reader.h).
Status check_no_images(std::span<const int32_t> tokens) {
  if (!has_images(tokens)) return {};
  return Error{"a text with images cannot be saved to a file"};
}

// All but the hash, to `file`, which has write(data, size).
template <class Target>
Status write_session(Target& file, Engine& engine, const SavedSession& session,
                     const Sequence& sequence) {
  KTX_TRY(check_no_adapters(sequence));
  KTX_TRY(check_no_images(session.tokens));
  KTX_ASSERT(sequence.length() <= static_cast<int64_t>(session.tokens.size()));
  const Hash128 plan = engine.plan().identity;
  SessionHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.header_bytes = sizeof header;
  header.plan_low = plan.low;
  header.plan_high = plan.high;
  header.kv_type = static_cast<uint32_t>(engine.kv_type());
  header.precision = static_cast<uint32_t>(engine.precision());
  header.block_tokens = KvCache::kBlockTokens;
  header.sampler_bytes = session.sampler ? sizeof(SamplerState) : 0;
  header.tokens = session.tokens.size();
  header.computed = static_cast<uint64_t>(sequence.length());
  header.note_bytes = session.note.size();
  header.kv_bytes = static_cast<uint64_t>(engine.cache().row_bytes(sequence));
  const KvBegins begins = engine.cache().begins(sequence);
  for (const SequenceKind kind : kPassingKinds) {
    header.begin(kind) = static_cast<uint64_t>(begins[kind]);
  }
  std::vector<std::byte> states(engine.cache().state_bytes(sequence));
  KTX_TRY(engine.runner().copy_states(sequence.states(), false, states));
  header.state_bytes = states.size();
  file.write(&header, sizeof header);
  if (session.sampler) file.write(&*session.sampler, sizeof(SamplerState));
  file.write(session.note.data(), session.note.size());
  file.write(session.tokens.data(), session.tokens.size() * sizeof(int32_t));
  KTX_TRY(visit_rows(engine, sequence, false, [&](std::span<std::byte> bytes) {
    file.write(bytes.data(), bytes.size());
    return Status();
  }));
  file.write(states.data(), states.size());
  return {};
}

// Into memory.
struct ImageWriter {
  SessionImage image;
  void write(const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    image.insert(image.end(), bytes, bytes + size);
  }
};

Status finish_file(HashedWriter& file, WorkFile& target) {
  const Hash128 hash = file.digest();
  file.write(&hash, sizeof hash);
  KTX_TRY(file.finish());
  return target.commit();
}

Result<WorkFile> open_target(const std::string& path) {
  WorkFile target = KTX_TRY(WorkFile::open(path, {kMagic, 7}));
  KTX_TRY(target.truncate(0));  // what a killed program left
  return target;
}

Error cannot_read(const std::string& path) {
  return Error{fmt::format("{}: cannot read the session: {}", path, std::strerror(errno))};
}

Result<SavedSession> load_from(File opened, const std::string& path, Engine& engine,
                               Sequence& sequence);

}  // namespace

Status save_session(const std::string& path, Engine& engine, const SavedSession& session,
                    const Sequence& sequence) {
  WorkFile target = KTX_TRY(open_target(path));
  HashedWriter file(target);
  KTX_TRY(write_session(file, engine, session, sequence));
  return finish_file(file, target);
}

Result<SessionImage> session_image(Engine& engine, const SavedSession& session,
                                   const Sequence& sequence) {
  ImageWriter writer;
  writer.image.reserve(sizeof(SessionHeader) + sizeof(SamplerState) + session.note.size() +
                       session.tokens.size() * sizeof(int32_t) +
                       engine.cache().state_bytes(sequence) +
                       static_cast<size_t>(engine.cache().row_bytes(sequence)));
  KTX_TRY(write_session(writer, engine, session, sequence));
  return std::move(writer.image);
}

Status write_image(const std::string& path, const SessionImage& image) {
  WorkFile target = KTX_TRY(open_target(path));
  HashedWriter file(target);
  constexpr size_t kPiece = 4 << 20;
  for (size_t at = 0; at < image.size(); at += kPiece) {
    file.write(image.data() + at, std::min(kPiece, image.size() - at));
  }
  return finish_file(file, target);
}

Result<SessionImage> read_image(const std::string& path, uint64_t most_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  File file(fd < 0 ? nullptr : ::fdopen(fd, "rb"));
  if (!file) return cannot_read(path);
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return cannot_read(path);
  if (!S_ISREG(info.st_mode)) return Error{fmt::format("{}: not a file", path)};
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (bytes > most_bytes) {
    return Error{fmt::format("{}: the file has {} bytes, a session of this server at most {}", path,
                             bytes, most_bytes)};
  }
  SessionImage image(bytes);
  if (std::fread(image.data(), 1, image.size(), file.get()) != image.size()) {
    return Error{fmt::format("{}: the file ends too early; it was cut off", path)};
  }
  return image;
}

Result<SavedSession> load_image(const std::string& path, const SessionImage& file, Engine& engine,
                                Sequence& sequence) {
  sequence.truncate(0);
  if (file.empty()) return Error{fmt::format("{}: the file ends too early; it was cut off", path)};
  // Only read: of mode "rb".
  File opened(::fmemopen(const_cast<std::byte*>(file.data()), file.size(), "rb"));
  if (!opened) return cannot_read(path);
  return load_from(std::move(opened), path, engine, sequence);
}

Result<SavedSession> load_session(const std::string& path, Engine& engine, Sequence& sequence) {
  sequence.truncate(0);
  File opened(std::fopen(path.c_str(), "rb"));
  if (!opened) return cannot_read(path);
  return load_from(std::move(opened), path, engine, sequence);
}

namespace {

Result<SavedSession> load_from(File opened, const std::string& path, Engine& engine,
                               Sequence& sequence) {
  KTX_TRY(check_no_adapters(sequence));
  HashedReader file(std::move(opened), path);
  const auto refuse = [&](const std::string& why) -> Error {
    return Error{fmt::format("{}: {}", path, why)};
  };

  SessionHeader header;
  KTX_TRY(file.read(&header, sizeof header));
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return refuse("not a session that ktx saved");
  }
  if (header.version != kVersion || header.header_bytes != sizeof header ||
      header.block_tokens != KvCache::kBlockTokens) {
    return refuse(fmt::format("session format {}, this program reads {}; save it again",
                              header.version, kVersion));
  }
  const Hash128 plan{header.plan_low, header.plan_high};
  if (plan != engine.plan().identity) {
    return refuse(fmt::format("saved with another plan ({}, this one is {})",
                              to_hex(plan).substr(0, 12),
                              to_hex(engine.plan().identity).substr(0, 12)));
  }
  if (header.kv_type != static_cast<uint32_t>(engine.kv_type()) ||
      header.precision != static_cast<uint32_t>(engine.precision())) {
    return refuse("saved with another --kv-type or --precision; give the same ones");
  }
  if (header.sampler_bytes != 0 && header.sampler_bytes != kRandomBytes &&
      header.sampler_bytes != sizeof(SamplerState)) {
    return refuse("damaged: the sampler's state has a wrong size");
  }
  if (header.tokens > static_cast<uint64_t>(engine.ctx())) {
    return refuse(fmt::format("the session has {} tokens, the context {}; a larger one: --ctx {}",
                              header.tokens, engine.ctx(), header.tokens));
  }
  KvBegins begins;
  bool sound = header.computed <= header.tokens && header.note_bytes <= kMaxNoteBytes;
  for (const SequenceKind kind : kPassingKinds) {
    sound = sound && header.begin(kind) <= header.computed;
    begins[kind] = static_cast<int64_t>(header.begin(kind));
  }
  if (!sound) {
    return refuse("damaged: sizes in the header make no sense");
  }

  SavedSession session;
  if (header.sampler_bytes != 0) {
    session.sampler.emplace();
    KTX_TRY(file.read(&*session.sampler, header.sampler_bytes));
  }
  // In parts: a wrong size must not take memory that the file does not fill.
  for (uint64_t left = header.note_bytes; left > 0;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(left, 1u << 20));
    const size_t at = session.note.size();
    session.note.resize(at + part);
    KTX_TRY(file.read(session.note.data() + at, part));
    left -= part;
  }
  session.tokens.resize(header.tokens);
  KTX_TRY(file.read(session.tokens.data(), header.tokens * sizeof(int32_t)));
  for (int32_t id : session.tokens) {
    if (id < 0 || id >= engine.vocab_size()) {
      return refuse(fmt::format("damaged: token {} is not in the vocabulary", id));
    }
  }
  session.computed = static_cast<int64_t>(header.computed);

  const auto read_rows = [&]() -> Status {
    if (!engine.cache().extend_uncomputed(sequence, session.computed, begins)) {
      return Error{fmt::format("{}: no room in the cache for {} tokens", path, session.computed)};
    }
    uint64_t bytes = 0;
    KTX_TRY(visit_rows(engine, sequence, true, [&](std::span<std::byte> rows) {
      bytes += rows.size();
      return file.read(rows.data(), rows.size());
    }));
    if (engine.cache().state_bytes(sequence) != header.state_bytes) {
      return refuse("damaged: its states have another size than this plan's");
    }
    std::vector<std::byte> states(header.state_bytes);
    KTX_TRY(file.read(states.data(), states.size()));
    KTX_TRY(engine.runner().copy_states(sequence.states(), true, states));
    const Hash128 expected = file.digest();
    Hash128 stored;
    KTX_TRY(file.read(&stored, sizeof stored));
    if (bytes != header.kv_bytes || stored != expected) {
      return refuse("damaged: the hash of its contents is wrong");
    }
    char more = 0;
    if (std::fread(&more, 1, 1, file.get()) != 0) return refuse("damaged: bytes behind its end");
    return {};
  };
  if (const Status status = read_rows(); !status) {
    sequence.truncate(0);
    return status.error();
  }
  return session;
}

}  // namespace

}  // namespace ktx::runtime
