#include "lib/plan/plan_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "lib/plan/digests.h"
#include "lib/plan/host_part.h"
#include "lib/plan/plan_hosts.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/verify_records.h"
#include "lib/plan/verify_weights.h"
#include "lib/program/streams.h"
#include "lib/support/strings.h"
#include "lib/support/thread_count.h"

namespace ktx::plan {
namespace {

constexpr uint32_t kMaxSections = 256;
constexpr uint64_t kMaxTableBytes = 256 << 20;     // of a section that is copied
constexpr uint64_t kMaxSectionBytes = 1ull << 30;  // of any section but weights

struct SectionInfo {
  SectionId id;
  std::string_view name;
  uint64_t element_bytes;
};

constexpr SectionInfo kSections[] = {
#define KTX_SECTION(id, number, name, element, sentence) {SectionId::id, name, sizeof(element)},
#include "lib/plan/sections.def"
#undef KTX_SECTION
};

const SectionInfo* find_info(uint32_t id) {
  for (const SectionInfo& row : kSections) {
    if (static_cast<uint32_t>(row.id) == id) return &row;
  }
  return nullptr;
}

std::string section_label(uint32_t id) {
  const SectionInfo* info = find_info(id);
  return info ? fmt::format("section '{}'", info->name) : fmt::format("section number {}", id);
}

// What a file that is no plan looks like, by its first bytes.
std::string not_a_plan(const std::string& path, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) {
    return fmt::format(
        "{}: this is a GGUF model, not a plan; compile it first: "
        "ktx-compile {} -o {}",
        path, shell_word(path), shell_word(path.substr(0, path.rfind(".gguf")) + ".ktxplan"));
  }
  if (text.starts_with("KTXWORK")) {
    return fmt::format(
        "{}: this plan is not finished (ktx-compile is at work or was stopped); "
        "run the same ktx-compile again",
        path);
  }
  struct Kind {
    std::string_view magic;
    std::string_view what;
  };
  constexpr Kind kKinds[] = {{"\x7f"
                              "ELF",
                              "a program"},
                             {"PK\x03\x04", "a zip archive or a PyTorch checkpoint"},
                             {"\x1f\x8b", "a gzip archive"},
                             {"{", "JSON"},
                             {"ggml", "an old GGML model"},
                             {"ggjt", "an old GGML model"}};
  for (const Kind& kind : kKinds) {
    if (text.starts_with(kind.magic)) {
      return fmt::format("{}: not a plan: it looks like {}", path, kind.what);
    }
  }
  if (text.size() > 9 && text[8] == '{') {
    return fmt::format("{}: not a plan: it looks like a safetensors file", path);
  }
  return fmt::format("{}: not a plan: it begins with '{}', expected 'KTXPLAN'", path,
                     printable(text.substr(0, 8)));
}

// Bytes on 64-byte lines, so that records and attributes in them are aligned.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::byte> bytes = {})
      : lines_((bytes.size() + 63) / 64), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(lines_.data(), bytes.data(), size_);
  }
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(lines_.data()), size_};
  }
  template <class T>
  std::span<T> records() {
    return {reinterpret_cast<T*>(lines_.data()), size_ / sizeof(T)};
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  size_t size_;
};

template <class T>
std::span<const T> as_records(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

struct PlanFile::State {
  explicit State(MappedFile mapped) : file(std::move(mapped)) {}

  MappedFile file;
  AlignedBytes header;                                     // prefix and section table
  std::map<SectionId, AlignedBytes> tables;                // copies of the small sections
  std::map<SectionId, std::span<const std::byte>> mapped;  // the larger ones, in place
  PlanView view;
  program::Program program;
  std::vector<program::Stream> streams;

  Status open(const PlanOpenOptions& options);
  // Leaves of the file a plan within it.
  Status narrow_to(SectionId inner);

 private:
  Status read_header();
  Status check_version(const Prefix& prefix) const;
  Status check_places() const;
  Status read_sections();
  Status check_digests() const;
  Status set_views();
  Status set_string_view();
  Status set_gguf_view();
  Status read_as(size_t host);

  std::span<const std::byte> table(SectionId id) const { return tables.at(id).bytes(); }
  std::string text(SectionId id) const {
    const auto bytes = table(id);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  // An error with the section's name in front.
  template <class T>
  static Result<T> of_section(SectionId id, Result<T> result) {
    if (result.ok()) return result;
    return Error{
        fmt::format("{}: {}", section_label(static_cast<uint32_t>(id)), result.error().message)};
  }
};

Status PlanFile::State::check_version(const Prefix& prefix) const {
  if (prefix.major != kMajor) {
    return Error{fmt::format(
        "plan format {}.{}, this ktx-run reads {}.x; {} [KTX-V001]", prefix.major, prefix.minor,
        kMajor,
        prefix.major > kMajor ? "use a newer ktx-run"
                              : "compile the model again: ktx-compile MODEL.gguf -o PLAN.ktxplan")};
  }
  if (prefix.min_reader_minor > kMinor) {
    return Error{fmt::format(
        "plan format {}.{} asks for a reader of {}.{}, this ktx-run is {}.{}; "
        "use a newer ktx-run [KTX-V001]",
        prefix.major, prefix.minor, prefix.major, prefix.min_reader_minor, kMajor, kMinor)};
  }
  return {};
}

// Takes a header whose hash is zero. The identity is the hash of the same plan without a self-test,
// which has an empty one at the file's end.
Hash128 identity_of(std::vector<std::byte> header) {
  const size_t sections = (header.size() - sizeof(Prefix)) / sizeof(SectionEntry);
  for (size_t i = 0; i < sections; ++i) {
    std::byte* const at = header.data() + sizeof(Prefix) + i * sizeof(SectionEntry);
    SectionEntry entry;
    std::memcpy(&entry, at, sizeof(entry));
    const auto id = static_cast<SectionId>(entry.id);
    if (id == SectionId::Digests) entry.hash = {};  // one of them is of the self-test
    if (id == SectionId::SelfTest) {
      entry.size = 0;
      entry.hash = hash_bytes({});
      std::memcpy(header.data() + offsetof(Prefix, file_bytes), &entry.offset, sizeof(uint64_t));
    }
    std::memcpy(at, &entry, sizeof(entry));
  }
  return hash_bytes(header);
}

Status PlanFile::State::read_header() {
  const auto bytes = file.bytes();
  Prefix prefix;
  if (bytes.size() < sizeof(prefix)) {
    return Error{
        fmt::format("{} bytes, too few for a plan; it was cut off: compile again", bytes.size())};
  }
  std::memcpy(&prefix, bytes.data(), sizeof(prefix));
  KTX_TRY(check_version(prefix));
  if (prefix.file_bytes != bytes.size()) {
    return Error{fmt::format("{} bytes, expected {}: the file was {}; copy or compile it again",
                             bytes.size(), prefix.file_bytes,
                             bytes.size() < prefix.file_bytes ? "cut off" : "extended")};
  }
  if (prefix.section_count > kMaxSections ||
      prefix.header_bytes != sizeof(Prefix) + prefix.section_count * sizeof(SectionEntry) ||
      prefix.header_bytes > bytes.size()) {
    return Error{fmt::format("header of {} bytes with {} sections is damaged; compile again",
                             prefix.header_bytes, prefix.section_count)};
  }
  header = AlignedBytes(bytes.first(prefix.header_bytes));
  // From here on only the copy counts.
  std::vector<std::byte> hashed(header.bytes().begin(), header.bytes().end());
  std::memcpy(&prefix, hashed.data(), sizeof(prefix));
  std::memset(hashed.data() + offsetof(Prefix, header_hash), 0, sizeof(Hash128));
  const Hash128 found = hash_bytes(hashed);
  if (!(found == prefix.header_hash)) {
    return Error{fmt::format("the header is damaged (hash {}, expected {}); compile again",
                             to_hex(found), to_hex(prefix.header_hash))};
  }
  view.minor = prefix.minor;
  view.file_bytes = bytes.size();
  view.identity = identity_of(hashed);
  view.file = bytes;
  view.header = header.bytes();
  view.sections = as_records<SectionEntry>(header.bytes().subspan(sizeof(Prefix)));
  return {};
}

// Sections lie inside the file, aligned, without overlap, with zeros between.
Status PlanFile::State::check_places() const {
  std::vector<SectionEntry> sorted(view.sections.begin(), view.sections.end());
  // An empty one is where the next one begins.
  std::sort(sorted.begin(), sorted.end(), [](const SectionEntry& a, const SectionEntry& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  });
  uint64_t at = header.bytes().size();
  for (const SectionEntry& section : sorted) {
    const std::string label = section_label(section.id);
    if (section.offset % kSectionAlignment != 0 || section.offset < at ||
        section.offset > view.file_bytes || section.size > view.file_bytes - section.offset) {
      return Error{fmt::format("{}: {} bytes at {} do not lie between {} and {}", label,
                               section.size, section.offset, at, view.file_bytes)};
    }
    const uint64_t gap = section.offset - at;
    if (gap >= kLargeSegmentAlignment || !all_zero(view.file.subspan(at, gap))) {
      return Error{fmt::format("{}: the {} bytes before it are not padding", label, gap)};
    }
    at = section.offset + section.size;
  }
  if (at != view.file_bytes) {
    return Error{fmt::format("the last section ends at {}, the file at {}", at, view.file_bytes)};
  }
  return {};
}

Status PlanFile::State::read_sections() {
  for (const SectionEntry& section : view.sections) {
    const std::string label = section_label(section.id);
    const SectionInfo* info = find_info(section.id);
    if (!info && (section.flags & kRequired)) {
      return Error{
          fmt::format("{} is not known here and the plan cannot be used without it; "
                      "use a newer ktx-run",
                      label)};
    }
    const bool again =
        info && ((info->id == SectionId::Drafter && std::exchange(view.has_drafter, true)) ||
                 (info->id == SectionId::Tower && std::exchange(view.has_tower, true)));
    if (again) {
      return Error{fmt::format("{} is there twice", label)};
    }
    if (info && is_large(info->id)) continue;
    if (section.size > kMaxSectionBytes) {
      return Error{
          fmt::format("{} has {} bytes, more than {}", label, section.size, kMaxSectionBytes)};
    }
    const auto bytes = view.file.subspan(section.offset, section.size);
    if (!info) {
      if (!(hash_bytes(bytes) == section.hash)) return Error{fmt::format("{} is damaged", label)};
      continue;
    }
    if (section.size % info->element_bytes != 0) {
      return Error{fmt::format("{}: {} bytes are no whole records of {}", label, section.size,
                               info->element_bytes)};
    }
    if (tables.contains(info->id) || mapped.contains(info->id)) {
      return Error{fmt::format("{} is there twice", label)};
    }
    const bool in_place = info->id == SectionId::Tokenizer || info->id == SectionId::ModuleGraph ||
                          info->id == SectionId::GgufHeader;
    std::span<const std::byte> hashed = bytes;
    if (in_place) {
      mapped[info->id] = bytes;
    } else {
      if (section.size > kMaxTableBytes) {
        return Error{
            fmt::format("{} has {} bytes, more than {}", label, section.size, kMaxTableBytes)};
      }
      hashed = (tables[info->id] = AlignedBytes(bytes)).bytes();
    }
    const Hash128 found = hash_bytes(hashed);
    if (!(found == section.hash)) {
      return Error{fmt::format("{} is damaged (hash {}, expected {}); compile again", label,
                               to_hex(found), to_hex(section.hash))};
    }
  }
  if (tables.contains(SectionId::Digests)) {
    view.digests = as_records<DigestRecord>(table(SectionId::Digests));
  }
  for (const SectionInfo& info : kSections) {
    if (is_large(info.id) || !is_in_every_file(info.id)) continue;
    if (!tables.contains(info.id) && !mapped.contains(info.id)) {
      return Error{fmt::format("section '{}' is missing; compile again", info.name)};
    }
  }
  return {};
}

// Compares what is used from here on: the copies, where there are any.
Status PlanFile::State::check_digests() const {
  const auto pieces = KTX_TRY(digest_pieces(view));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SectionEntry& section = view.sections[pieces[i].section];
    const auto id = static_cast<SectionId>(section.id);
    if (is_large(id)) continue;
    const auto copy = tables.find(id);
    const auto bytes = copy != tables.end() ? copy->second.bytes()
                                            : view.file.subspan(section.offset, section.size);
    if (KTX_TRY(sha256(bytes.subspan(pieces[i].begin, pieces[i].size))) == view.digests[i]) {
      continue;
    }
    return Error{fmt::format("{} has a different SHA-256 than the plan states: it was changed",
                             section_label(section.id))};
  }
  return {};
}

Status PlanFile::State::set_string_view() {
  const auto bytes = table(SectionId::Strings);
  uint32_t count = 0;
  if (bytes.size() >= 8) std::memcpy(&count, bytes.data(), sizeof(count));
  const uint64_t text_begin = 8 + uint64_t{count} * sizeof(StringEntry);
  if (bytes.size() < text_begin) {
    return Error{fmt::format("section 'strings': {} strings in {} bytes", count, bytes.size())};
  }
  view.string_entries = as_records<StringEntry>(bytes.subspan(8, text_begin - 8));
  view.string_text = {reinterpret_cast<const char*>(bytes.data()) + text_begin,
                      bytes.size() - text_begin};
  return {};
}

Status PlanFile::State::set_gguf_view() {
  const auto section = mapped.at(SectionId::GgufHeader);
  uint32_t counts[2] = {0, 0};
  if (section.size() >= sizeof(counts)) std::memcpy(counts, section.data(), sizeof(counts));
  const uint64_t shard_bytes = uint64_t{counts[0]} * sizeof(GgufShardRecord);
  const uint64_t tensor_bytes = uint64_t{counts[1]} * sizeof(GgufTensorRecord);
  if (section.size() < sizeof(counts) + shard_bytes + tensor_bytes ||
      shard_bytes + tensor_bytes > kMaxTableBytes) {
    return Error{fmt::format("section 'gguf-header': {} shards and {} tensors in {} bytes",
                             counts[0], counts[1], section.size())};
  }
  // The records are copied; the headers behind them stay in the mapping.
  tables[SectionId::GgufHeader] =
      AlignedBytes(section.subspan(sizeof(counts), shard_bytes + tensor_bytes));
  view.gguf_section = section;
  view.gguf_shards = as_records<GgufShardRecord>(table(SectionId::GgufHeader).first(shard_bytes));
  view.gguf_tensors =
      as_records<GgufTensorRecord>(table(SectionId::GgufHeader).subspan(shard_bytes));
  return {};
}

Status PlanFile::State::set_views() {
  view.facts = KTX_TRY(of_section(SectionId::Facts, facts_from_json(text(SectionId::Facts))));
  view.target = KTX_TRY(of_section(SectionId::Target, target_from_json(text(SectionId::Target))));
  view.provenance =
      KTX_TRY(of_section(SectionId::Provenance, provenance_from_json(text(SectionId::Provenance))));
  view.chat_template = KTX_TRY(
      of_section(SectionId::ChatTemplate, chat_template_from_json(text(SectionId::ChatTemplate))));
  view.segments = as_records<SegmentRecord>(table(SectionId::Segments));
  view.blobs = as_records<BlobRecord>(table(SectionId::Blobs));
  view.slices = as_records<SliceRecord>(table(SectionId::Slices));
  view.values = as_records<ValueRecord>(table(SectionId::Values));
  view.buffers = as_records<BufferRecord>(table(SectionId::Buffers));
  view.operands = as_records<OperandRecord>(table(SectionId::Operands));
  view.weight_uses = as_records<uint32_t>(table(SectionId::WeightUses));
  view.attrs = table(SectionId::Attrs);
  view.steps = as_records<StepRecord>(table(SectionId::Steps));
  view.kv_slots = as_records<KvSlotRecord>(table(SectionId::KvSlots));
  view.parts = as_records<PartRecord>(table(SectionId::Parts));
  view.launches = as_records<LaunchRecord>(table(SectionId::Launches));
  view.launch_steps = as_records<uint32_t>(table(SectionId::LaunchSteps));
  view.chunks = as_records<ChunkRecord>(table(SectionId::Chunks));
  if (tables.contains(SectionId::DraftTokens)) {
    view.draft_tokens = as_records<int32_t>(table(SectionId::DraftTokens));
  }
  if (tables.contains(SectionId::SourceHashes)) {
    view.source_hashes = as_records<Hash128>(table(SectionId::SourceHashes));
  }
  view.tokenizer = mapped.at(SectionId::Tokenizer);
  const auto graph = mapped.at(SectionId::ModuleGraph);
  view.module_graph = {reinterpret_cast<const char*>(graph.data()), graph.size()};
  KTX_TRY(set_string_view());
  return set_gguf_view();
}

// Exchanges the names of the first host's devices and of this one's.
Status PlanFile::State::read_as(size_t host) {
  if (host == 0) return {};
  if (host >= host_count(view)) {
    return Error{
        fmt::format("the plan is for {} host{}, and this is number {} of a run; start as many "
                    "processes as it has hosts",
                    host_count(view), host_count(view) == 1 ? "" : "s", host + 1)};
  }
  std::map<uint32_t, uint32_t> names;
  const auto exchange = [&](uint32_t& device) {
    const auto [known, added] = names.try_emplace(device);
    if (added) known->second = name_as_read_on(view, host, device);
    device = known->second;
  };
  for (auto& record : tables.at(SectionId::Segments).records<SegmentRecord>()) {
    exchange(record.device);
  }
  for (auto& record : tables.at(SectionId::Steps).records<StepRecord>()) exchange(record.device);
  for (auto& record : tables.at(SectionId::KvSlots).records<KvSlotRecord>()) {
    exchange(record.device);
  }
  for (auto& record : tables.at(SectionId::Parts).records<PartRecord>()) {
    exchange(record.device);
    exchange(record.from);
  }
  view.host = host;
  program = program_of(view);
  view.streams = streams = program::streams_of(program);
  return {};
}

Status PlanFile::State::open(const PlanOpenOptions& options) {
  KTX_TRY(read_header());
  KTX_TRY(check_places());
  KTX_TRY(read_sections());
  if (options.verify_digests) KTX_TRY(check_digests());
  KTX_TRY(set_views());
  KTX_TRY(verify_records(view));
  KTX_TRY(verify_hosts(view));
  program = KTX_TRY(load_program(view));
  view.program = &program;
  view.streams = streams = program::streams_of(program);
  return read_as(options.host);
}

Status PlanFile::State::narrow_to(SectionId inner) {
  KTX_TRY(read_header());
  KTX_TRY(check_places());
  for (const SectionEntry& section : view.sections) {
    if (section.id != static_cast<uint32_t>(inner)) continue;
    if (section.offset % kSegmentAlignment != 0 || section.size < sizeof(kMagic) ||
        std::memcmp(file.bytes().data() + section.offset, kMagic, sizeof(kMagic)) != 0) {
      return Error{section_label(section.id) + " is no plan; compile again"};
    }
    file.narrow(section.offset, section.size);
    view = {};
    return {};
  }
  if (inner == SectionId::Tower) {
    return Error{
        "the plan has nothing that reads images; compile the model with its projector: ktx-compile "
        "MODEL.gguf --mmproj PROJECTOR.gguf"};
  }
  return Error{
      "the plan has no drafter; compile it with one: ktx-compile MODEL.gguf --draft SMALL.gguf, or "
      "--draft mtp where the model has layers for multi-token prediction"};
}

PlanFile::PlanFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
PlanFile::PlanFile(PlanFile&&) noexcept = default;
PlanFile& PlanFile::operator=(PlanFile&&) noexcept = default;
PlanFile::~PlanFile() = default;

Result<PlanFile> PlanFile::open(const std::string& path, const PlanOpenOptions& options) {
  auto state = std::make_unique<State>(KTX_TRY(MappedFile::open(path)));
  const auto bytes = state->file.bytes();
  const size_t magic_bytes = std::min(bytes.size(), sizeof(kMagic));
  if (std::memcmp(bytes.data(), kMagic, magic_bytes) != 0) return Error{not_a_plan(path, bytes)};
  Result<std::optional<HostPart>> part = read_host_part(bytes);
  if (!part) return Error{fmt::format("{}: {}", path, part.error().message)};
  if (*part) KTX_TRY(state->file.spread((*part)->whole_bytes, (*part)->pieces));
  if (options.drafter || options.tower) {
    const Status narrowed =
        state->narrow_to(options.drafter ? SectionId::Drafter : SectionId::Tower);
    if (!narrowed) return Error{fmt::format("{}: {}", path, narrowed.error().message)};
  }
  if (options.huge_pages) {
    KTX_TRY(state->file.copy_to_huge_pages(thread_count(options.threads)));
  }
  state->file.advise_huge_pages();

  Status status = state->open(options);
  if (status.ok() && *part) status = check_host_part(state->view, **part);
  if (*part) state->view.part_of = (*part)->host;
  if (status.ok() && options.own_weights) status = check_part(state->view);
  if (status.ok() && options.verify_weights) {
    status = verify_weights(state->view, options.threads);
  }
  KTX_TRY(state->file.check());  // a file cut under our hands explains any other error
  if (!status.ok()) return Error{fmt::format("{}: {}", path, status.error().message)};
  return PlanFile(std::move(state));
}

const PlanView& PlanFile::view() const {
  return state_->view;
}
const std::string& PlanFile::path() const {
  return state_->file.path();
}
const MappedFile& PlanFile::mapping() const {
  return state_->file;
}
Status PlanFile::check() const {
  return state_->file.check();
}

}  // namespace ktx::plan
