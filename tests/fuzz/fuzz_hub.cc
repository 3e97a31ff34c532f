// Reads fuzzer input as a hub's list of a model's files (ktx-pull). What is chosen of it is one
// file or all shards of one model, each below the model's folder and with what it is checked by.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_hub
//   build-fuzz/tests/fuzz/fuzz_hub FOUND tests/fuzz/corpus/hub
//
// First byte: which quantisation is chosen.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "lib/support/shard_names.h"
#include "tools/ktx-pull/hub_files.h"

namespace {

using namespace ktx;
using tools::HubFile;

constexpr const char* kQuants[] = {"", "q4_k_m", "Q8_0", "d/m-IQ2_XS"};

void expect(bool holds) {
  if (!holds) std::abort();
}

bool is_hex(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

// As the file system would take it, not as the reader looked at it.
bool stays_below(const std::string& path) {
  const std::filesystem::path folder("/models/o/n");
  const auto place = (folder / path).lexically_normal();
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), place.begin(), place.end());
  return end == folder.end() && rest != place.end() && path.find('\0') == path.npos;
}

void check(const HubFile& file) {
  expect(stays_below(file.path));
  expect(file.bytes > 0 && file.sha256.size() == 64 && is_hex(file.sha256));
}

void check_chosen(const std::vector<HubFile>& files) {
  expect(!files.empty());
  std::set<std::string> paths;
  uint64_t bytes = 0;
  for (const HubFile& file : files) {
    check(file);
    paths.insert(file.path);
    bytes += file.bytes;
    expect(bytes >= file.bytes);
  }
  expect(bytes == tools::bytes_of(files) && paths.size() == files.size());
  const auto shard = parse_shard_name(files.front().path);
  if (!shard) return expect(files.size() == 1);
  expect(shard->count == files.size());
  for (uint32_t i = 1; i <= shard->count; ++i) expect(paths.contains(shard_path(*shard, i)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto listing = tools::read_listing(text, "hf:o/n");
  if (!listing) {
    expect(!listing.error().message.empty());
    return 0;
  }
  expect(listing->commit.size() == 40 && is_hex(listing->commit));
  for (const HubFile& file : listing->ggufs) check(file);
  expect(tools::list_text(listing->ggufs).find('\x1b') == std::string::npos);
  const auto files =
      tools::choose_files(*listing, kQuants[data[0] % std::size(kQuants)], "n", "hf:o/n");
  if (files) return check_chosen(*files), 0;
  expect(files.error().message.find('\x1b') == std::string::npos);
  return 0;
}
