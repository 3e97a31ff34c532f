#include "tools/hub_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/support/strings.h"
#include "tools/child_program.h"

namespace ktx::tools {
namespace {

constexpr std::string_view kPrefix = "hf:";
constexpr size_t kLongest = 96;  // of an owner or a name, as hubs have it

bool is_plain(std::string_view part, std::string_view more) {
  const auto fits = [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || c == '-' || c == '_' || c == '.' || more.find(c) != more.npos;
  };
  return !part.empty() && part.size() <= kLongest && part.front() != '.' && part.front() != '-' &&
         std::ranges::all_of(part, fits) && part.find("..") == part.npos;
}

}  // namespace

bool is_hub_model(const std::string& word) {
  std::error_code error;
  return word.starts_with(kPrefix) && !std::filesystem::exists(word, error);
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
  if (!word.starts_with(kPrefix)) return wrong;
  std::string_view rest = word.substr(kPrefix.size());
  HubModel model;
  if (const size_t colon = rest.find(':'); colon != rest.npos) {
    model.quant = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_plain(model.quant, "")) return wrong;
  }
  if (const size_t at = rest.find('@'); at != rest.npos) {
    model.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_plain(model.revision, "")) return wrong;
  }
  const size_t slash = rest.find('/');
  if (slash == rest.npos) return wrong;
  model.owner = rest.substr(0, slash);
  model.name = rest.substr(slash + 1);
  if (!is_plain(model.owner, "") || !is_plain(model.name, "")) return wrong;
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
  PullEnd pulled{"", false, end.status, end.signal};
  if (end.status != 0 || end.signal != 0) return pulled;
  constexpr std::string_view kMove = "\nmove\n";
  pulled.moves = end.output.ends_with(kMove);
  pulled.path = trim(end.output.substr(0, end.output.size() - (pulled.moves ? kMove.size() : 0)));
  return pulled;
}

std::string plan_name_of(const HubModel& model) {
  std::string name = model.name;
  for (const std::string_view suffix : {"-GGUF", "-gguf"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  }
  return model.quant.empty() ? name : name + "-" + model.quant;
}

}  // namespace ktx::tools
