#include "lib/input/file_kind.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace ktx::input {
namespace {

bool is_text(std::string_view head) {
  // Control bytes other than white space do not occur in YAML, JSON or Jinja.
  return std::none_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f';
  });
}

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), [](char p, char t) {
           return p == (t >= 'A' && t <= 'Z' ? static_cast<char>(t + 32) : t);
         });
}

// i32 number of entries, then of each: i32 length of its name, the name of a tensor.
bool is_imatrix(std::string_view head) {
  uint32_t entries = 0, length = 0;
  if (head.size() < 16) return false;
  std::memcpy(&entries, head.data(), sizeof entries);
  std::memcpy(&length, head.data() + 4, sizeof length);
  const std::string_view name = head.substr(8, std::min<size_t>(length, head.size() - 8));
  return entries > 0 && entries < (1 << 20) && length < 256 && name.ends_with(".weight");
}

// Whether the first line that is no comment is the header of a graph's text form.
bool is_graph_text(std::string_view text) {
  while (text.starts_with('#') || text.starts_with('\n')) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return text.starts_with("module-ir ") || text.starts_with("step-ir ");
}

}  // namespace

FileKind file_kind(std::span<const std::byte> bytes) {
  const size_t size = std::min<size_t>(bytes.size(), 4096);
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), size);
  if (head.empty()) return FileKind::Empty;
  if (head.starts_with("GGUF")) {
    // A version such as 0x03000000 is 3 of the other byte order.
    const bool swapped = size >= 8 && head[4] == 0 && head[5] == 0 && (head[6] || head[7]);
    return swapped ? FileKind::GgufSwapped : FileKind::Gguf;
  }
  if (head.starts_with("FUGG")) return FileKind::GgufSwapped;
  if (head.starts_with("KTXPLAN")) return FileKind::KtxPlan;
  if (head.starts_with("version https://git-lfs")) return FileKind::GitLfsPointer;
  for (const char* magic : {"lmgg", "tjgg", "fmgg", "algg"}) {
    if (head.starts_with(magic)) return FileKind::OldGgml;
  }
  if (head.starts_with("PK\x03\x04")) return FileKind::Zip;
  if (head.starts_with("\x1f\x8b")) return FileKind::Gzip;
  if (head.starts_with("\x7f"
                       "ELF")) {
    return FileKind::Elf;
  }
  if (is_imatrix(head)) return FileKind::Imatrix;
  if (size >= 9 && head[8] == '{') {  // u64 length of a JSON header, then the header
    uint64_t length;
    std::memcpy(&length, head.data(), sizeof length);
    if (length >= 2 && length < (uint64_t{1} << 40)) return FileKind::SafeTensors;
  }
  const size_t text_at = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  const std::string_view text = text_at == head.npos ? "" : head.substr(text_at);
  if (starts_with_ignoring_case(text, "<!doctype") || starts_with_ignoring_case(text, "<html")) {
    return FileKind::Html;
  }
  if (head.find_first_not_of('\0') == head.npos) return FileKind::Zeros;
  if (!is_text(head)) return FileKind::Unknown;
  if (is_graph_text(text)) return FileKind::GraphText;
  return text.starts_with('{') ? FileKind::Json : FileKind::Text;
}

std::string_view describe(FileKind kind) {
  constexpr std::string_view kText[] = {
      "a GGUF file",
      "a GGUF file of a big-endian machine",
      "a ktxplan file",
      "a safetensors file",
      "an HTML page, perhaps an error page saved by a download",
      "a git-lfs pointer, not the file itself; run `git lfs pull`",
      "a JSON file",
      "a text file",
      "a graph as text",
      "a GGML file from before GGUF; convert the model again",
      "an importance matrix (imatrix.dat), data for quantising; give the GGUF of the model",
      "a zip file, perhaps a PyTorch checkpoint",
      "a gzip file",
      "a program",
      "filled with zeros, perhaps an unfinished download",
      "empty",
      "of an unknown kind",
  };
  static_assert(std::size(kText) == static_cast<size_t>(FileKind::Unknown) + 1);
  return kText[static_cast<size_t>(kind)];
}

}  // namespace ktx::input
