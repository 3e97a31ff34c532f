#include "lib/support/near_files.h"

#include <algorithm>
#include <filesystem>

#include "lib/support/strings.h"

namespace ktx {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxEntries = 10000;

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

// Names of everything in a folder, folders with a "/" behind, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator() && names.size() < kMaxEntries;
       at.increment(error)) {
    std::error_code unknown;
    const bool is_folder = at->is_directory(unknown);
    names.push_back(at->path().filename().string() + (is_folder ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string nearest_file(const std::string& path) {
  const fs::path wanted(path);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  const std::string name = wanted.filename().string(), extension = wanted.extension().string();
  if (name.empty()) return "";
  const auto beside = [&](const std::string& other) {
    return (wanted.parent_path() / other).string();
  };
  std::vector<std::string> alike, with_other_extension;
  for (const std::string& other : names_in(folder)) {
    if (other.ends_with('/')) continue;
    if (lower(other) == lower(name)) return beside(other);
    const fs::path file(other);
    if (file.extension() == extension) alike.push_back(other);
    if (file.stem() == wanted.stem() || other == wanted.stem() ||
        file.stem() == wanted.filename()) {
      with_other_extension.push_back(other);
    }
  }
  const std::string nearest = nearest_name(name, alike);
  if (!nearest.empty()) return beside(nearest);
  if (with_other_extension.size() == 1) return beside(with_other_extension[0]);
  const bool only = alike.size() == 1 && (extension == ".gguf" || extension == ".ktxplan");
  return only ? beside(alike[0]) : "";
}

std::vector<std::string> files_of_folder(const std::string& folder, std::string_view extension) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with(extension)) files.push_back((fs::path(folder) / name).string());
  }
  return files;
}

}  // namespace ktx
