#include "lib/plan/plan_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/plan/digests.h"
#include "lib/plan/needed_reader.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/verify_records.h"
#include "lib/support/moved_file.h"
#include "lib/support/work_file.h"

namespace ktx::plan {
namespace {

// The first bytes of a work file, instead of a plan's prefix. The journal
// begins at the end of the plan.
struct WorkMark {
  char magic[8];
  uint32_t version;
  uint32_t chunk_count;
  Hash128 identity;
  uint64_t file_bytes;
  PlanWriter::Moved moved;
};
static_assert(sizeof(WorkMark) == sizeof(Prefix));

constexpr char kWorkMagic[8] = {'K', 'T', 'X', 'W', 'O', 'R', 'K', '\x1a'};
constexpr uint32_t kWorkVersion = 1;

struct JournalRecord {
  Hash128 hash;
  uint64_t done;
  uint64_t reserved;
};
static_assert(sizeof(JournalRecord) == 32);

template <class T>
std::span<const std::byte> bytes_of(const T& record) {
  return std::as_bytes(std::span(&record, 1));
}

template <class T>
std::string text_of_records(const std::vector<T>& records) {
  return {reinterpret_cast<const char*>(records.data()), records.size() * sizeof(T)};
}

Hash128 identity_of(const PlanContents& contents, const PlanLayout& layout,
                    const Hash128& source_key) {
  Hasher hasher;
  hasher.add(bytes_of(kWorkVersion));
  hasher.add(bytes_of(source_key));
  for (const SectionEntry& section : layout.sections) {
    hasher.add(bytes_of(section));
    const std::string bytes = section_bytes(contents, static_cast<SectionId>(section.id));
    hasher.add(bytes_of(hash_bytes(std::as_bytes(std::span(bytes)))));
  }
  // The prefix of a plan within has a hash that covers all of it.
  for (const auto& [id, offset] : layout.inner_offsets) {
    const std::span<const std::byte> inner = inner_plan(contents, id);
    hasher.add(inner.first(std::min(inner.size(), sizeof(Prefix))));
  }
  for (const auto& [blob, bytes] : contents.constants) {
    hasher.add(bytes_of(blob));
    hasher.add(bytes);
  }
  return hasher.digest();
}

// The reader's own checks, before any work is done: a plan that no reader will
// open is a mistake of the compiler, and better found in a second than in an hour.
Status check_as_reader(const PlanContents& contents, const PlanLayout& layout) {
  PlanView view;
  view.file_bytes = layout.file_bytes;
  view.sections = layout.sections;
  view.facts = KTX_TRY(facts_from_json(to_json(contents.facts)));
  view.segments = contents.segments;
  view.blobs = contents.blobs;
  view.slices = contents.slices;
  view.values = contents.values;
  view.buffers = contents.buffers;
  view.operands = contents.operands;
  view.weight_uses = contents.weight_uses;
  view.attrs = contents.attrs;
  view.steps = contents.steps;
  view.kv_slots = contents.kv_slots;
  view.parts = contents.parts;
  view.launches = contents.launches;
  view.launch_steps = contents.launch_steps;
  view.draft_tokens = contents.draft_tokens;
  view.source_hashes = contents.source_hashes;
  std::vector<ChunkRecord> chunks;
  for (const ChunkRange& chunk : layout.chunks) {
    const uint64_t begin = chunk.offset - contents.segments[chunk.segment].offset;
    chunks.push_back({chunk.segment, static_cast<uint32_t>(begin / kHashChunkBytes), {}});
  }
  view.chunks = chunks;
  const std::string gguf = section_bytes(contents, SectionId::GgufHeader);
  std::vector<GgufShardRecord> shards(contents.gguf.shards.size());
  std::memcpy(shards.data(), gguf.data() + 2 * sizeof(uint32_t),
              shards.size() * sizeof(GgufShardRecord));
  view.gguf_shards = shards;
  view.gguf_tensors = contents.gguf.tensors;
  view.gguf_section = std::as_bytes(std::span(gguf));
  std::vector<StringEntry> entries;
  std::string text;
  for (uint32_t i = 0; i < contents.strings.size(); ++i) {
    entries.push_back(
        {static_cast<uint32_t>(text.size()), static_cast<uint32_t>(contents.strings[i].size())});
    text += contents.strings[i];
  }
  view.string_entries = entries;
  view.string_text = text;
  KTX_TRY(verify_records(view));
  KTX_TRY(load_program(view));
  return {};
}

}  // namespace

struct PlanWriter::State {
  explicit State(WorkFile work_file) : file(std::move(work_file)) {}

  WorkFile file;
  PlanContents contents;
  PlanLayout layout;
  Hash128 identity;
  std::vector<std::optional<Hash128>> journaled;
  std::vector<std::optional<Hash128>> chunk_hashes;
  std::vector<DigestRecord> chunk_digests;
  WorkMark mark = {};
  bool moves = false;
  bool resumed = false, started = false;  // of a move
  bool other_work = false;

  uint64_t journal_bytes() const { return layout.chunks.size() * sizeof(JournalRecord); }

  Status begin(const WriterOptions& options) {
    std::memcpy(mark.magic, kWorkMagic, sizeof(mark.magic));
    mark.version = kWorkVersion;
    mark.chunk_count = static_cast<uint32_t>(layout.chunks.size());
    mark.identity = identity;
    mark.file_bytes = layout.file_bytes;
    journaled.assign(layout.chunks.size(), std::nullopt);
    moves = options.moves;
    if (moves) return begin_move(options);
    if (options.resume && take_over(mark)) return {};
    KTX_TRY(file.truncate(0));
    KTX_TRY(file.reserve(layout.file_bytes + journal_bytes()));
    return file.write(0, bytes_of(mark));
  }

  Status begin_move(const WriterOptions& options) {
    WorkMark found = {};
    const auto bytes = std::as_writable_bytes(std::span(&found, 1));
    KTX_TRY(file.read(0, bytes.first(std::min<uint64_t>(file.size(), bytes.size()))));
    const Moved moved = found.moved;
    found.moved = {};
    if (std::memcmp(&found, &mark, sizeof(mark)) == 0) {
      if (file.size() != layout.file_bytes) {
        return Error{fmt::format("{}: has {} bytes, expected {}; restore it", file.path(),
                                 file.size(), layout.file_bytes)};
      }
      mark.moved = moved;
      resumed = started = true;
      return {};
    }
    const bool ours = std::memcmp(found.magic, kWorkMagic, sizeof(found.magic)) == 0;
    const bool empty = std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
    if (!(ours && moved.end == 0) && !empty) {
      return Error{fmt::format(
          "{}: an earlier --consume was stopped here, with another model, other options, rules, "
          "target or version of ktx-compile, and this file has weights that may be nowhere else; "
          "give that command again, or remove the file if its model is there whole",
          file.path())};
    }
    other_work = ours;
    file.leave(file.size() > 0);
    return file.check_space(layout.file_bytes, options.given_back);
  }

  // A work file with nothing in it, which no later run misses.
  Status start_move() {
    KTX_TRY(file.truncate(0));
    KTX_TRY(file.truncate(layout.file_bytes));
    file.leave(false);
    other_work = false;
    started = true;
    return {};
  }

  // Reads the journal of a killed run with the same inputs; false if there is none.
  bool take_over(const WorkMark& expected) {
    if (file.size() != layout.file_bytes + journal_bytes()) return false;
    WorkMark found = {};
    if (!file.read(0, std::as_writable_bytes(std::span(&found, 1))).ok() ||
        std::memcmp(&found, &expected, sizeof(found)) != 0) {
      return false;
    }
    std::vector<JournalRecord> records(layout.chunks.size());
    if (!file.read(layout.file_bytes, std::as_writable_bytes(std::span(records))).ok()) {
      return false;
    }
    journaled.clear();
    for (const JournalRecord& record : records) {
      journaled.push_back(record.done == 1 ? std::optional(record.hash) : std::nullopt);
    }
    return true;
  }

  // Everything from the start of the file to the first segment.
  Result<std::string> head();
  // SHA-256 of the sections that stand in `head`, the chunks and the plans within.
  Result<std::vector<DigestRecord>> digests(std::string_view head) const;
};

Result<std::vector<DigestRecord>> PlanWriter::State::digests(std::string_view head) const {
  std::vector<DigestRecord> digests;
  size_t chunk = 0;
  for (const DigestPiece& piece : digest_pieces(layout.sections)) {
    const SectionEntry& section = layout.sections[piece.section];
    if (section.id == static_cast<uint32_t>(SectionId::WeightData)) {
      digests.push_back(chunk_digests[chunk++]);
      continue;
    }
    const auto id = static_cast<SectionId>(section.id);
    const auto bytes = is_inner_plan(id) ? inner_plan(contents, id)
                       : id == SectionId::SelfTest
                           ? std::as_bytes(std::span(contents.self_test))
                           : std::as_bytes(std::span(head)).subspan(section.offset);
    digests.push_back(KTX_TRY(sha256(bytes.subspan(piece.begin, piece.size))));
  }
  return digests;
}

Result<std::string> PlanWriter::State::head() {
  std::vector<ChunkRecord> chunks;
  uint32_t number = 0;
  for (size_t i = 0; i < layout.chunks.size(); ++i) {
    const uint32_t segment = layout.chunks[i].segment;
    number = i > 0 && layout.chunks[i - 1].segment == segment ? number + 1 : 0;
    chunks.push_back({segment, number, *chunk_hashes[i]});
  }
  std::vector<SectionEntry> sections = layout.sections;
  std::string out;
  for (SectionEntry& section : sections) {
    const auto id = static_cast<SectionId>(section.id);
    if (id == SectionId::SelfTest) {
      section.hash = hash_bytes(std::as_bytes(std::span(contents.self_test)));
    }
    if (is_large(id)) continue;
    std::string bytes = section_bytes(contents, id);
    if (id == SectionId::Chunks) bytes = text_of_records(chunks);
    if (id == SectionId::Digests) bytes = text_of_records(KTX_TRY(digests(out)));
    KTX_ASSERT(bytes.size() == section.size);
    section.hash = hash_bytes(std::as_bytes(std::span(bytes)));
    out.resize(section.offset);
    out += bytes;
  }
  Prefix prefix = {};
  std::memcpy(prefix.magic, kMagic, sizeof(prefix.magic));
  prefix.major = kMajor;
  prefix.minor = kMinor;
  prefix.min_reader_minor = needed_reader(contents);
  prefix.header_bytes =
      static_cast<uint32_t>(sizeof(Prefix) + sections.size() * sizeof(SectionEntry));
  prefix.file_bytes = layout.file_bytes;
  prefix.section_count = static_cast<uint32_t>(sections.size());
  std::memcpy(out.data(), &prefix, sizeof(prefix));
  std::memcpy(out.data() + sizeof(prefix), sections.data(), sections.size() * sizeof(SectionEntry));
  prefix.header_hash = hash_bytes(std::as_bytes(std::span(out)).first(prefix.header_bytes));
  std::memcpy(out.data(), &prefix, sizeof(prefix));
  return out;
}

Hash128 source_key(std::span<const SourceFile> files) {
  constexpr size_t kSamples = 32, kSampleBytes = 4096;
  Hasher hasher;
  for (const auto& [stamp, bytes] : files) {
    hasher.add(bytes_of(stamp));
    const size_t step = bytes.size() / kSamples + 1;
    for (size_t at = 0; at < bytes.size(); at += step) {
      hasher.add(bytes.subspan(at, std::min(kSampleBytes, bytes.size() - at)));
    }
    hasher.add(bytes.last(std::min(kSampleBytes, bytes.size())));
  }
  return hasher.digest();
}

PlanWriter::PlanWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
PlanWriter::PlanWriter(PlanWriter&&) noexcept = default;
PlanWriter& PlanWriter::operator=(PlanWriter&&) noexcept = default;
PlanWriter::~PlanWriter() = default;

Result<PlanWriter> PlanWriter::create(const std::string& path, PlanContents contents,
                                      const WriterOptions& options) {
  PlanLayout layout = KTX_TRY(lay_out(contents));
  if (const Status status = check_as_reader(contents, layout); !status.ok()) {
    return Error{fmt::format("{}: the compiled plan is not valid (a mistake in ktx-compile): {}",
                             path, status.error().message)};
  }
  auto state = std::make_unique<State>(
      KTX_TRY(WorkFile::open(path, {kMagic, 7}, 0666, options.moves ? kMovingSuffix : ".work")));
  state->file.leave(options.moves);  // until it is known to have nothing
  state->contents = std::move(contents);
  state->layout = std::move(layout);
  state->identity = identity_of(state->contents, state->layout, options.source_key);
  state->chunk_hashes.resize(state->layout.chunks.size());
  state->chunk_digests.resize(state->layout.chunks.size());
  KTX_TRY(state->begin(options));
  return PlanWriter(std::move(state));
}

const std::string& PlanWriter::path() const {
  return state_->file.target();
}
const PlanContents& PlanWriter::contents() const {
  return state_->contents;
}
const PlanLayout& PlanWriter::layout() const {
  return state_->layout;
}

const PlanWriter::Moved& PlanWriter::moved() const {
  return state_->mark.moved;
}
bool PlanWriter::resumed() const {
  return state_->resumed;
}
bool PlanWriter::has_other_work() const {
  return state_->other_work;
}

Status PlanWriter::set_moved(const Moved& moved) {
  WorkFile& file = state_->file;
  if (!state_->started) KTX_TRY(state_->start_move());
  KTX_TRY(file.sync());
  state_->mark.moved = moved;
  KTX_TRY(file.write(0, bytes_of(state_->mark)));
  KTX_TRY(file.sync());
  if (moved.end == 0) sync_folder_of(file.path());  // the first mark: the file has a name as well
  if (moved.end > 0) file.leave();
  return {};
}

Result<MappedFile> PlanWriter::map() const {
  return MappedFile::open(state_->file.path());
}

std::optional<Hash128> PlanWriter::journaled_hash(size_t chunk) const {
  return state_->journaled[chunk];
}

Status PlanWriter::write(uint64_t offset, std::span<const std::byte> bytes) {
  return state_->file.write(offset, bytes);
}

Status PlanWriter::read(uint64_t offset, std::span<std::byte> bytes) {
  return state_->file.read(offset, bytes);
}

Status PlanWriter::finish_chunk(size_t chunk, const Hash128& hash, const DigestRecord& digest) {
  state_->chunk_hashes[chunk] = hash;
  state_->chunk_digests[chunk] = digest;
  if (state_->moves) return {};  // its mark has the place
  const JournalRecord record = {hash, 1, 0};
  return state_->file.write(state_->layout.file_bytes + chunk * sizeof(JournalRecord),
                            bytes_of(record));
}

void PlanWriter::set_hashes(size_t blob, const Hash128& hash, const Hash128& source) {
  state_->contents.blobs[blob].hash = hash;
  state_->contents.source_hashes[blob] = source;
}

Status PlanWriter::finish() {
  KTX_TRY(complete());
  return put_in_place();
}

Status PlanWriter::complete() {
  State& state = *state_;
  KTX_ASSERT(std::all_of(state.chunk_hashes.begin(), state.chunk_hashes.end(),
                         [](const auto& hash) { return hash.has_value(); }));
  for (const auto& [id, offset] : state.layout.inner_offsets) {
    KTX_TRY(state.file.write(offset, inner_plan(state.contents, id)));
  }
  KTX_TRY(state.file.write(state.layout.self_test_offset,
                           std::as_bytes(std::span(state.contents.self_test))));
  const std::string head = KTX_TRY(state.head());
  const auto bytes = std::as_bytes(std::span(head));
  // The mark goes last: until then a killed run can still be taken over.
  KTX_TRY(state.file.write(sizeof(Prefix), bytes.subspan(sizeof(Prefix))));
  KTX_TRY(state.file.sync());
  KTX_TRY(state.file.write(0, bytes.first(sizeof(Prefix))));
  KTX_TRY(state.file.truncate(state.layout.file_bytes));  // cuts off the journal
  return state.file.sync();
}

Status PlanWriter::put_in_place() {
  return state_->file.commit();
}

}  // namespace ktx::plan
