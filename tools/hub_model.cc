#include "tools/hub_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "lib/support/shard_names.h"
#include "lib/support/strings.h"
#include "tools/child_program.h"

namespace ktx::tools {
namespace {

constexpr std::string_view kPrefix = "hf:";
constexpr std::string_view kUsualRevision = "main";
constexpr size_t kLongest = 96;  // of an owner or a name, as hubs have it

bool has_gguf_end(const std::string& name) {
  return name.ends_with("-GGUF") || name.ends_with("-gguf");
}

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
}

bool is_plain(std::string_view part) {
  const auto fits = [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || c == '-' || c == '_' || c == '.';
  };
  return !part.empty() && part.size() <= kLongest && part.front() != '.' && part.front() != '-' &&
         std::ranges::all_of(part, fits) && part.find("..") == part.npos;
}

// What is behind the hub's own address, as a browser or Ollama has it; nothing for other words.
std::optional<std::string_view> behind_address(std::string_view word) {
  if (word.starts_with("https://")) word.remove_prefix(std::string_view("https://").size());
  for (const std::string_view host : {"huggingface.co/", "hf.co/"}) {
    if (word.starts_with(host)) return word.substr(host.size());
  }
  return std::nullopt;
}

// "gemma-3-1b-it-Q4_K_M.gguf" of NAME "gemma-3-1b-it-GGUF" -> "Q4_K_M"
std::string quant_of_file(std::string_view file, const std::string& name) {
  const auto shard = parse_shard_name(file);
  std::string stem(shard ? shard->prefix : file.substr(0, file.rfind('.')));
  const std::string model = name.substr(0, name.size() - (has_gguf_end(name) ? 5 : 0)) + "-";
  return stem.starts_with(model) ? stem.substr(model.size()) : stem;
}

// "o/n/blob/v1/folder/n-Q8_0.gguf?download=true" -> "o/n@v1:Q8_0"; "": no model's.
std::string short_form(std::string_view path) {
  path = path.substr(0, path.find_first_of("?#"));
  while (path.ends_with('/')) path.remove_suffix(1);
  const auto parts = split(path, '/');
  if (parts.size() < 3) return std::string(path);
  const bool of_file = parts.size() > 4 && parts.back().ends_with(".gguf");
  const bool of_tree = parts.size() == 4 && parts[2] == "tree";
  if (!of_file && !of_tree) return "";
  const std::string name(parts[1]);
  return fmt::format("{}/{}@{}{}", parts[0], name, parts[3],
                     of_file ? ":" + quant_of_file(parts.back(), name) : "");
}

}  // namespace

bool is_hub_model(const std::string& word) {
  std::error_code error;
  return (word.starts_with(kPrefix) || behind_address(word)) &&
         !std::filesystem::exists(word, error);
}

std::string HubModel::text() const {
  return fmt::format("hf:{}/{}{}{}{}{}", owner, name, revision.empty() ? "" : "@", revision,
                     quant.empty() ? "" : ":", quant);
}

Result<HubModel> parse_hub_model(std::string_view word) {
  const Error wrong{
      fmt::format("'{}' is no model of a hub; write hf:OWNER/NAME or hf:OWNER/NAME:QUANT, such as "
                  "hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
                  printable(word))};
  std::string of_address;
  std::string_view rest = word;
  if (const auto path = behind_address(word)) {
    of_address = short_form(*path);
    rest = of_address;
  } else if (word.starts_with(kPrefix)) {
    rest.remove_prefix(kPrefix.size());
  } else {
    return wrong;
  }
  HubModel model;
  if (const size_t colon = rest.find(':'); colon != rest.npos) {
    model.quant = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_plain(model.quant)) return wrong;
    std::ranges::transform(model.quant, model.quant.begin(), upper);
  }
  if (const size_t at = rest.find('@'); at != rest.npos) {
    model.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_plain(model.revision)) return wrong;
    if (model.revision == kUsualRevision) model.revision.clear();
  }
  const size_t slash = rest.find('/');
  if (slash == rest.npos) return wrong;
  model.owner = rest.substr(0, slash);
  model.name = rest.substr(slash + 1);
  if (!is_plain(model.owner) || !is_plain(model.name)) return wrong;
  return model;
}

Result<PullEnd> pull_model(const std::string& word, std::vector<std::string> more) {
  KTX_TRY(parse_hub_model(word));
  const Result<std::string> program = find_program("ktx-pull");
  if (!program) {
    return Error{program.error().message +
                 "; it is built where libcurl is (docs/building.md), and without it a GGUF is "
                 "downloaded by hand"};
  }
  more.insert(more.begin(), word);
  const ChildEnd end = KTX_TRY(run_child({*program, more, -1, true}));
  PullEnd pulled;
  pulled.status = end.status;
  pulled.signal = end.signal;
  if (end.status != 0 || end.signal != 0) return pulled;
  std::string_view text = trim(end.output);
  const auto ends_in = [&](std::string_view line) {
    if (!text.ends_with(line)) return false;
    text.remove_suffix(line.size());
    return true;
  };
  pulled.moves = ends_in("\nmove");
  pulled.moved = ends_in("\nmoved");
  pulled.path = text;
  return pulled;
}

std::string plan_name_of(const HubModel& model) {
  std::string name = model.name;
  if (has_gguf_end(name)) name.resize(name.size() - 5);
  return model.quant.empty() ? name : name + "-" + model.quant;
}

}  // namespace ktx::tools
