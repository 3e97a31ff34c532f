#include "tools/ktx-compile/sarif_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lib/support/env.h"
#include "lib/support/strings.h"
#include "tools/ktx-compile/line_fingerprints.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path.lexically_normal() : whole;
}

// "" when `path` is not below `root`.
std::string below(const fs::path& path, const fs::path& root) {
  const fs::path relative = path.lexically_relative(root);
  const bool inside = !relative.empty() && *relative.begin() != ".." && relative != ".";
  return inside ? relative.generic_string() : "";
}

fs::path checkout_root() {
  std::error_code error;
  const fs::path here = resolved(fs::current_path(error));
  const auto workspace = env("GITHUB_WORKSPACE");
  if (!workspace) return here;
  const fs::path root = resolved(*workspace);
  return here == root || !below(here, root).empty() ? root : here;
}

// Bytes that a URI cannot hold are escaped.
std::string escaped(const std::string& path) {
  std::string out;
  for (const unsigned char c : path) {
    const bool plain = std::isalnum(c) || std::string_view("-._~/").find(static_cast<char>(c)) !=
                                              std::string_view::npos;
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return out;
}

int code_points(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

SarifPlaces::SarifPlaces(const DiagSink& sink) : sink_(sink), root_(checkout_root()) {}

std::string SarifPlaces::relative(const std::string& file) const {
  return below(resolved(file), root_);
}

bool SarifPlaces::in_checkout(const std::string& file) const {
  return !file.empty() && !relative(file).empty();
}

Json SarifPlaces::artifact(const std::string& file) const {
  const std::string inside = relative(file);
  return {{"uri", inside.empty() ? "file://" + escaped(resolved(file).generic_string())
                                 : escaped(inside)}};
}

const std::vector<std::string_view>* SarifPlaces::lines_of(const std::string& file) const {
  const std::string* text = sink_.source(file);
  if (!text) return nullptr;
  const auto [found, added] = lines_.try_emplace(file);
  if (added) found->second = split(*text, '\n');
  return &found->second;
}

Json SarifPlaces::span(const SourceLoc& loc, int least) const {
  int line = std::max(loc.line, 1);
  size_t begin = loc.line > 0 ? static_cast<size_t>(std::max(loc.column, 1)) - 1 : 0;
  size_t end = begin + static_cast<size_t>(std::max(loc.line > 0 ? loc.length : 0, 0));
  if (const std::vector<std::string_view>* lines = lines_of(loc.file)) {
    line = std::min(line, static_cast<int>(lines->size()));
    std::string_view row = (*lines)[static_cast<size_t>(line) - 1];
    if (row.ends_with('\r')) row.remove_suffix(1);
    const auto columns_before = [&](size_t byte) {
      return static_cast<size_t>(code_points(row.substr(0, std::min(byte, row.size()))));
    };
    begin = columns_before(begin);
    end = columns_before(end);
  }
  end = std::max(end, begin + static_cast<size_t>(least));
  return {
      {"startLine", line}, {"startColumn", begin + 1}, {"endLine", line}, {"endColumn", end + 1}};
}

Json SarifPlaces::region(const SourceLoc& loc) const {
  return span(loc, 1);
}

Json SarifPlaces::edited_region(const SourceLoc& loc) const {
  return span(loc, 0);
}

Json SarifPlaces::location(const SourceLoc& loc) const {
  return {
      {"physicalLocation", {{"artifactLocation", artifact(loc.file)}, {"region", region(loc)}}}};
}

std::string SarifPlaces::fingerprint(const SourceLoc& loc) {
  const std::string* text = sink_.source(loc.file);
  if (!text) return "";
  const auto [found, added] = fingerprints_.try_emplace(loc.file);
  if (added) found->second = line_fingerprints(*text);
  const size_t line = static_cast<size_t>(std::max(loc.line, 1)) - 1;
  return found->second[std::min(line, found->second.size() - 1)];
}

}  // namespace ktx::tools
