// ktx-run inspect: shows the contents of a plan, verifies it, and rebuilds its source GGUF.
//
//   ktx-run inspect model.ktxplan                          tables
//   ktx-run inspect model.ktxplan --json                   the same for programs
//   ktx-run inspect model.ktxplan --verify                 reads and checks all weights
//   ktx-run inspect model.ktxplan --export-gguf copy.gguf  rebuilds the source
//   ktx-run inspect --diff old.ktxplan new.ktxplan         what differs
//   ktx-run inspect model.ktxplan --provenance             where it came from
//   ktx-run inspect model.ktxplan --emit=step-ir           what it runs, as text
//   ktx-run inspect model.ktxplan --cyclonedx bom.json     the same as a bill of materials
//   ktx-run inspect model.ktxplan --sign key.pem           writes model.ktxplan.sig
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/plan/describe_plan.h"
#include "lib/plan/diff_plans.h"
#include "lib/plan/digests.h"
#include "lib/plan/export_gguf.h"
#include "lib/plan/plan_program.h"
#include "lib/plan/plan_reader.h"
#include "lib/plan/unpack_layout.h"
#include "lib/support/mapped_file.h"
#include "lib/support/sha256.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "lib/support/write_file.h"
#include "lib/text/chat_template/template_report.h"
#include "lib/trust/bill_of_materials.h"
#include "lib/trust/bundle.h"
#include "lib/trust/signed_plan.h"
#include "lib/trust/source_sha256.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {
namespace {

// Fails where nothing more can be printed; finish.h says why.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

Result<std::string> diff_text(const plan::PlanFile& plan, const Options& options) {
  // The first one of the two, which --diff names.
  const plan::PlanFile first = KTX_TRY(plan::PlanFile::open(options.diff));
  const plan::PlanDiff diff = KTX_TRY(plan::diff_plans(first.view(), plan.view()));
  KTX_TRY(first.check());
  return options.json ? plan::diff_json(diff) : plan::diff_tables(diff);
}

// As `sha256sum` prints them.
Result<std::string> source_text(const plan::PlanFile& plan) {
  const Result<std::vector<std::string>> digests = trust::source_sha256(plan.view());
  if (!digests) return Error{fmt::format("{}: {}", plan.path(), digests.error().message)};
  std::string text;
  for (size_t i = 0; i < digests->size(); ++i) {
    text += fmt::format("{}  gguf of {} bytes\n", (*digests)[i], plan->gguf_shards[i].file_size);
  }
  return text;
}

Result<std::string> root_line(const plan::PlanFile& plan) {
  const Result<Digest256> root = plan::root_digest(plan.view());
  if (!root) return Error{fmt::format("{}: {}", plan.path(), root.error().message)};
  return plan::root_text(*root);
}

// What the chat templates do, by name; "" is the usual one.
std::map<std::string, text::TemplateReport> reports_of(const plan::PlanView& plan) {
  std::map<std::string, std::string> templates = plan.chat_template.named;
  if (!plan.chat_template.source.empty()) templates[""] = plan.chat_template.source;
  std::map<std::string, text::TemplateReport> reports;
  for (const auto& [name, source] : templates) {
    auto report = text::report_template(source, plan.facts.architecture);
    if (report) reports[name] = report.take();
  }
  return reports;
}

std::string template_lines(const plan::PlanView& plan) {
  std::string text;
  for (const auto& [name, report] : reports_of(plan)) {
    text +=
        name.empty() ? "\nchat template\n" : fmt::format("\nchat template '{}'\n", printable(name));
    const std::string lines = text::report_lines(report);
    for (const std::string_view line : split(lines, '\n')) {
      if (!line.empty()) text += fmt::format("  {}\n", line);
    }
  }
  return text;
}

std::string json_text(const plan::PlanView& plan) {
  using Json = nlohmann::ordered_json;
  Json json = Json::parse(plan::plan_json(plan));
  for (const auto& [name, report] : reports_of(plan)) {
    json["chat_templates"].push_back({{"name", name},
                                      {"sha256", report.sha256},
                                      {"known", report.known},
                                      {"same", report.same},
                                      {"variables", report.variables},
                                      {"fields", report.fields},
                                      {"calls", report.calls},
                                      {"instructions", report.instructions},
                                      {"added", report.added},
                                      {"missing", report.missing}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> text_of(const plan::PlanFile& plan, const Options& options) {
  if (options.root) return root_line(plan);
  if (options.source_sha256) return source_text(plan);
  if (options.emit == "module-ir") return std::string(plan->module_graph);
  if (options.emit == "step-ir") return plan::program_text(plan.view());
  if (!options.diff.empty()) return diff_text(plan, options);
  if (options.provenance) {
    return options.json ? trust::provenance_json(plan.view()) : trust::provenance_text(plan.view());
  }
  // Signing, checking a signature and writing a file print no tables.
  const bool other_work =
      !options.verify_signature.empty() || !options.sign.empty() || !options.cyclonedx.empty();
  if (other_work && !options.json) return std::string();
  return options.json ? json_text(plan.view())
                      : plan::plan_tables(plan.view()) + template_lines(plan.view());
}

Status write_bill(const plan::PlanFile& plan, const std::string& path) {
  const std::string digest = to_hex(KTX_TRY(sha256(plan->file)));
  KTX_TRY(plan.check());
  return write_file(path, "{", trust::cyclonedx_json(plan.view(), digest));
}

Status check_signature(const Options& options) {
  const trust::SignatureKey key = KTX_TRY(trust::read_signature_key(options.verify_signature));
  const trust::SignedPlan plan =
      KTX_TRY(trust::verify_plan(key, options.plan, {.threads = options.engine.threads}));
  note(fmt::format("{}: all of it is signed with the key, by {}", options.plan, plan.signature));
  return {};
}

Status sign(const plan::PlanFile& plan, const Options& options) {
  const std::string key = KTX_TRY(read_text_file(options.sign, 1 << 20));
  // The bytes of the file, also of one host's part, which is mapped elsewhere.
  const MappedFile file = KTX_TRY(MappedFile::open(plan.path()));
  const std::string name = std::filesystem::path(plan.path()).filename().string();
  const Result<std::string> bundle = trust::sign_bundle(key, name, file.bytes());
  if (!bundle) return Error{fmt::format("{}: {}", options.sign, bundle.error().message)};
  KTX_TRY(file.check());
  KTX_TRY(replace_file(plan.path() + ".sig", "{", *bundle));
  note(fmt::format("{}.sig: written", plan.path()));
  return {};
}

}  // namespace

int run_inspect(const Options& options) {
  if (!options.verify_signature.empty()) {
    const Status found = check_signature(options);
    if (!found) return fail(found.error().message);
  }
  plan::PlanOpenOptions open_options;
  open_options.verify_weights = options.engine.verify;
  open_options.threads = options.engine.threads;
  const Timer open_timer;
  const auto plan = plan::PlanFile::open(options.plan, open_options);
  if (!plan.ok()) return fail(plan.error().message);
  if (options.engine.verify && plan->view().has_tower) {
    auto of_tower = open_options;
    of_tower.tower = true;
    const auto tower = plan::PlanFile::open(options.plan, of_tower);
    if (!tower.ok()) return fail(tower.error().message);
  }
  if (options.engine.verify && plan->view().has_drafter) {
    open_options.drafter = true;
    const auto drafter = plan::PlanFile::open(options.plan, open_options);
    if (!drafter.ok()) return fail(drafter.error().message);
  }
  const double seconds = open_timer.seconds();

  const Result<std::string> text = text_of(*plan, options);
  if (!text) return fail(text.error().message);
  if (!print(*text)) return 1;
  if (const Status status = plan->check(); !status.ok()) return fail(status.error().message);
  if (options.engine.verify) {
    note(fmt::format("{}: all hashes are right ({} in {:.1f} s)", options.plan,
                     human_bytes(plan->view().file_bytes), seconds));
  }
  if (!options.sign.empty()) {
    const Status written = sign(*plan, options);
    if (!written) return fail(written.error().message);
  }
  if (!options.cyclonedx.empty()) {
    const Status written = write_bill(*plan, options.cyclonedx);
    if (!written) return fail(written.error().message);
    note(fmt::format("{}: written", printable(options.cyclonedx)));
  }
  if (!options.export_gguf.empty()) {
    const Timer export_timer;
    const auto paths =
        plan::export_gguf(*plan, options.export_gguf, plan::unpack_layout, options.engine.threads);
    if (!paths.ok()) return fail(paths.error().message);
    for (const std::string& path : *paths) {
      note(fmt::format("{}: written ({:.1f} s)", path, export_timer.seconds()));
    }
    for (const std::string& adapter : (*plan)->facts.merged) {
      note(fmt::format("its weights are not the model's: merged {}", printable(adapter)));
    }
  }
  return 0;
}

}  // namespace ktx::tools
