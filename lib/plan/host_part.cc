#include "lib/plan/host_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/plan/plan_hosts.h"
#include "lib/support/work_file.h"

namespace ktx::plan {
namespace {

struct PartMark {
  char magic[8];
  uint32_t version;
  uint32_t host;
  uint64_t whole_bytes;
  uint32_t ranges;
  uint32_t reserved[9];
};
static_assert(sizeof(PartMark) == 64);
struct PartRange {
  uint64_t at, offset, size;  // in the part; in the whole plan
};

constexpr char kPartMagic[8] = {'K', 'T', 'X', 'P', 'A', 'R', 'T', '\x1a'};
constexpr uint32_t kPartVersion = 1;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostWholeBytes = uint64_t{1} << 46;  // what addresses hold
constexpr uint64_t kCopiedAtOnce = 64 << 20;

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// The pages [begin, end) of a range lie behind `from` and inside `limit`.
bool in_order(uint64_t begin, uint64_t size, uint64_t from, uint64_t limit) {
  return begin % kPage == 0 && begin >= from && begin <= limit && size <= limit - begin;
}

// Where weights begin: all before it is in every part.
uint64_t head_bytes(const PlanView& plan) {
  uint64_t end = plan.file_bytes;
  for (const SegmentRecord& segment : plan.segments) end = std::min(end, segment.offset);
  for (const SectionEntry& section : plan.sections) {
    if (is_inner_plan(static_cast<SectionId>(section.id))) end = std::min(end, section.offset);
  }
  return end;
}

// What a host's part has of the whole plan: the head, and the host's weights.
std::vector<PartRange> ranges_of(const PlanView& plan, size_t host) {
  std::vector<PartRange> ranges = {{0, 0, head_bytes(plan)}};
  for (const SegmentRecord& segment : plan.segments) {
    if (segment.size > 0 && host_of(plan, segment) == host) {
      ranges.push_back({0, segment.offset, segment.size});
    }
  }
  for (const SectionEntry& section : plan.sections) {
    if (!is_inner_plan(static_cast<SectionId>(section.id)) || host != 0) continue;
    ranges.push_back({0, section.offset, section.size});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const PartRange& a, const PartRange& b) { return a.offset < b.offset; });
  return ranges;
}

Status write_part(const PlanFile& plan, size_t host, const std::string& path) {
  std::vector<PartRange> ranges = ranges_of(plan.view(), host);
  uint64_t end = 0;
  for (PartRange& range : ranges) {
    range.at = end;
    end = whole_pages(end + range.size);
  }
  PartMark mark = {};
  std::memcpy(mark.magic, kPartMagic, sizeof(mark.magic));
  mark.version = kPartVersion;
  mark.host = static_cast<uint32_t>(host);
  mark.whole_bytes = plan->file_bytes;
  mark.ranges = static_cast<uint32_t>(ranges.size());
  WorkFile file = KTX_TRY(WorkFile::open(path, {kMagic, 7}));
  KTX_TRY(file.truncate(0));
  const auto table = std::as_bytes(std::span(ranges));
  KTX_TRY(file.reserve(end + table.size() + sizeof(mark)));
  for (const PartRange& range : ranges) {
    for (uint64_t done = 0; done < range.size; done += kCopiedAtOnce) {
      const uint64_t size = std::min(kCopiedAtOnce, range.size - done);
      KTX_TRY(file.write(range.at + done, plan->file.subspan(range.offset + done, size)));
    }
  }
  KTX_TRY(plan.check());
  KTX_TRY(file.write(end, table));
  KTX_TRY(file.write(end + table.size(), std::as_bytes(std::span(&mark, 1))));
  return file.commit();
}

}  // namespace

Result<std::optional<HostPart>> read_host_part(std::span<const std::byte> file) {
  PartMark mark;
  if (file.size() < sizeof(mark)) return std::optional<HostPart>();
  std::memcpy(&mark, file.last(sizeof(mark)).data(), sizeof(mark));
  if (std::memcmp(mark.magic, kPartMagic, sizeof(kPartMagic)) != 0) {
    return std::optional<HostPart>();
  }
  if (mark.version != kPartVersion) {
    return Error{fmt::format(
        "a host's part in format {}, this ktx-run reads {}; use the ktx-run that came with its compiler",
        mark.version, kPartVersion)};
  }
  const Error damaged{"the end of this host's part of a plan is damaged; copy it again"};
  uint64_t limit = file.size() - sizeof(mark);
  if (mark.ranges == 0 || mark.ranges > limit / sizeof(PartRange) ||
      mark.whole_bytes > kMostWholeBytes) {
    return damaged;
  }
  limit -= mark.ranges * sizeof(PartRange);
  std::vector<PartRange> ranges(mark.ranges);
  std::memcpy(ranges.data(), file.data() + limit, mark.ranges * sizeof(PartRange));
  HostPart part{mark.host, mark.whole_bytes, {}};
  uint64_t at = 0, offset = 0;
  for (const PartRange& range : ranges) {
    if (!in_order(range.at, range.size, at, limit) ||
        !in_order(range.offset, range.size, offset, mark.whole_bytes)) {
      return damaged;
    }
    part.pieces.push_back({range.at, range.offset, range.size});
    at = range.at + whole_pages(range.size);
    offset = range.offset + whole_pages(range.size);
  }
  if (ranges[0].offset != 0 || ranges[0].at != 0) return damaged;
  return std::optional(std::move(part));
}

Status check_host_part(const PlanView& plan, const HostPart& part) {
  const std::vector<PartRange> ranges = ranges_of(plan, part.host);
  const auto same = [](const PartRange& range, const MappedFile::Piece& piece) {
    return range.offset == piece.offset && range.size == piece.size;
  };
  if (part.host < plan.target.hosts.size() && std::ranges::equal(ranges, part.pieces, same)) {
    return {};
  }
  return Error{"what this host's part has of the plan is not what the host needs; copy it again"};
}

std::string host_part_path(const std::string& plan, const std::string& host) {
  constexpr std::string_view kEnd = ".ktxplan";
  const bool ends = plan.ends_with(kEnd);
  const std::string stem = ends ? plan.substr(0, plan.size() - kEnd.size()) : plan;
  return fmt::format("{}.{}{}", stem, host, ends ? kEnd : "");
}

Result<std::vector<std::string>> write_host_parts(const PlanFile& plan) {
  std::vector<std::string> paths;
  for (size_t host = 0; host < plan->target.hosts.size(); ++host) {
    paths.push_back(host_part_path(plan.path(), plan->target.hosts[host].name));
    KTX_TRY(write_part(plan, host, paths.back()));
  }
  return paths;
}

}  // namespace ktx::plan
