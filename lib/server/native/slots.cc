// GET /slots, POST /slots/ID?action=save|restore|erase: saves the texts of the batch's slots to
// files and restores them.
//
// A restored text is in the prefix cache: the next request with this beginning continues from
// there, with the same bits as if it had never been evicted. /v1/completions with `resume_slot`
// continues its answer from the saved random state.
//
// With API keys, a text belongs to the key of its request, in memory (slot_texts.h) and in
// files: each key has its own folder, .keys/OWNER, and the file names the owner. Texts of
// another key look as if they did not exist. A file without an owner (written by a server
// without keys or by an earlier version) belongs to servers without keys.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "lib/runtime/engine/images_of_pass.h"
#include "lib/runtime/session/session_file.h"
#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/request/sampling_fields.h"

namespace ktx::server {
namespace {

using runtime::Engine;

// Keys and values up to this size are copied on the engine's thread, which takes a moment, and
// written and read beside it.
constexpr uint64_t kMostCopied = uint64_t{1} << 30;

// File names only, so that a client reaches nothing outside of the folder.
bool is_file_name(const std::string& name) {
  if (name.empty() || name.size() > 128 || name[0] == '.') return false;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    if (!good) return false;
  }
  return true;
}

// Where the files of the context's owner lie. No file name begins with a dot.
std::string folder_of(const ServerContext& context) {
  if (context.owner.empty()) return context.slot_dir;
  return context.slot_dir + "/.keys/" + context.owner;
}

// Texts are private: only this user may enter the folders.
void make_folder(const ServerContext& context) {
  if (context.owner.empty()) return;
  ::mkdir((context.slot_dir + "/.keys").c_str(), 0700);
  ::mkdir(folder_of(context).c_str(), 0700);
}

// A message about a file by the name that the client knows: where the files lie is no business
// of its.
std::string without_folder(const ServerContext& context, std::string message) {
  std::error_code ignored;
  const std::filesystem::path folder = folder_of(context);
  for (const auto& path : {folder, std::filesystem::weakly_canonical(folder, ignored)}) {
    const std::string prefix = path.string() + "/";
    for (size_t at; (at = message.find(prefix)) != std::string::npos;) {
      message.erase(at, prefix.size());
    }
  }
  return message;
}

// A file that was moved between folders keeps its owner; one without is the folder's.
bool is_own(const ServerContext& context, const std::string& note) {
  const Json json = parse_nested(note);
  return string_or(json, "owner", context.owner) == context.owner;
}

// What save wrote beside the tokens: which of them are the answer, and how it is sampled.
ApiStatus read_note(const ServedModel& model, const std::string& note, runtime::SlotText& text) {
  const Json json = KTX_TRY(parse_body(note));
  FieldReader in(json);
  text.answered = in.whole("answered", 0, 0, static_cast<int64_t>(text.tokens.size()));
  if (const Json* sampling = in.object("sampling")) {
    FieldReader fields(*sampling, "sampling.");
    read_sampling(fields, 0, *model.tokenizer, text.sampling);
    KTX_TRY(fields.status());
  }
  return in.status();
}

}  // namespace

ApiStatus get_slots(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  if (!context.show_slots) {
    return ApiError{501, "this server does not show its slots (--slots off)", "", ""};
  }
  Json list = Json::array();
  for (const runtime::SlotState& slot : context.model->scheduler->slots(context.owner)) {
    Json json = {{"id", slot.id},
                 {"is_processing", slot.busy},
                 {"state", !slot.busy       ? "idle"
                           : slot.in_prompt ? "prompt"
                                            : "generation"},
                 {"id_task", slot.request},
                 {"n_ctx", context.model->scheduler->capacity()},
                 {"speculative", context.model->scheduler->max_draft_tokens() > 0},
                 {"n_tokens", slot.tokens},
                 {"n_computed", slot.computed}};
    const runtime::SlotText text = context.model->scheduler->slot_text(slot.id, context.owner);
    if (!text.tokens.empty()) {
      json["params"] = sampling_json(text.sampling);
      json["next_token"] = {{"n_decoded", text.answered}};
    }
    list.push_back(std::move(json));
  }
  send_json(reply, list);
  return {};
}

ApiStatus post_slot(const ServerContext& context, const HttpRequest& request,
                    const HttpReplyPtr& reply) {
  runtime::BatchScheduler& scheduler = *context.model->scheduler;
  const std::string text = request.path.substr(std::string("/slots/").size());
  int slot = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slot);
  const auto slots = static_cast<int>(scheduler.slots().size());
  if (error != std::errc() || end != text.data() + text.size() || slot < 0 || slot >= slots) {
    return ApiError{404, fmt::format("no slot '{}'; there are 0 to {}", text, slots - 1), "id", ""};
  }
  const std::string& owner = context.owner;
  const std::string action = request.query_value("action");
  if (action == "erase") {
    const runtime::SlotText erased = scheduler.slot_text(slot, owner);
    const std::vector<int32_t>& tokens = erased.tokens;
    scheduler.call([&](Engine& engine) {
      engine.cache().forget(tokens, scheduler.cache_owner(owner), erased.lora);
    });
    if (!scheduler.set_slot_text(slot, {}, owner)) {
      return ApiError{409, fmt::format("slot {} is busy", slot), "id", "busy"};
    }
    send_json(reply, {{"id_slot", slot}, {"n_erased", tokens.size()}});
    return {};
  }
  if (action != "save" && action != "restore") {
    return ApiError{400, fmt::format("'action' is '{}', expected save, restore or erase", action),
                    "action", ""};
  }
  if (context.slot_dir.empty()) {
    return ApiError{501, "slots are not saved: start the server with --slot-dir", "",
                    "no_slot_dir"};
  }
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const std::string name = in.text("filename");
  if (!is_file_name(name)) {
    in.fail("filename", "'filename' must be a plain name of letters, digits, '.', '-' and '_'");
  }
  KTX_TRY(in.status());
  const std::string path = folder_of(context) + "/" + name;

  if (action == "save") {
    const runtime::SlotText text_now = scheduler.slot_text(slot, owner);
    if (runtime::has_images(text_now.tokens)) {
      return ApiError{400, fmt::format("the text of slot {} has images, which are not saved", slot),
                      "id", ""};
    }
    make_folder(context);
    Status saved;
    int64_t kept = 0;
    std::optional<runtime::SessionImage> image;  // written here: the engine waits for no disk
    const auto keep = [&](Engine& engine, const runtime::SavedSession& session,
                          const runtime::Sequence& sequence) {
      kept = sequence.length();
      if (static_cast<uint64_t>(engine.cache().row_bytes(sequence)) > kMostCopied) {
        saved = save_session(path, engine, session, sequence);
        return;
      }
      Result<runtime::SessionImage> copied = session_image(engine, session, sequence);
      if (copied) {
        image = copied.take();
      } else {
        saved = copied.error();
      }
    };
    size_t tokens = 0;
    int64_t answered = 0;
    scheduler.call_with_slot(
        slot,
        [&](Engine& engine, const runtime::SlotText& text, const runtime::Sequence* running) {
          runtime::SavedSession session;
          session.tokens = text.tokens;
          session.sampler = text.sampler;
          Json note = {{"answered", text.answered}, {"sampling", sampling_json(text.sampling)}};
          if (!owner.empty()) note["owner"] = owner;
          session.note = dump(note);
          tokens = text.tokens.size();
          answered = text.answered;
          if (running != nullptr) return keep(engine, session, *running);
          // The part of an ended text that is still in the cache.
          runtime::Sequence sequence = engine.new_sequence(scheduler.cache_owner(owner), text.lora);
          std::vector<int32_t> longer = text.tokens;
          longer.push_back(0);
          engine.cache().reuse(sequence, longer);
          keep(engine, session, sequence);
        },
        owner);
    if (image) saved = runtime::write_image(path, *image);
    if (!saved) {
      return ApiError{500, without_folder(context, saved.error().message), "", ""};
    }
    std::error_code ignored;
    send_json(reply, {{"id_slot", slot},
                      {"filename", name},
                      {"n_saved", tokens},
                      {"n_answered", answered},
                      {"n_computed", kept},
                      {"n_written", std::filesystem::file_size(path, ignored)}});
    return {};
  }
  Result<runtime::SavedSession> loaded = Error{"not read"};
  Result<runtime::SessionImage> image = Error{"not read"};
  std::error_code unknown;
  const uint64_t bytes = std::filesystem::file_size(path, unknown);
  const bool copies = unknown || bytes <= kMostCopied;
  if (copies) {
    image = runtime::read_image(path, kMostCopied);
    if (!image) {
      return ApiError{400, without_folder(context, image.error().message), "filename", ""};
    }
  }
  scheduler.call([&](Engine& engine) {
    runtime::Sequence sequence = engine.new_sequence(scheduler.cache_owner(owner));
    loaded =
        copies ? load_image(path, *image, engine, sequence) : load_session(path, engine, sequence);
    if (!loaded) return;
    if (!is_own(context, loaded->note)) {
      loaded = Error{fmt::format("{}: cannot read the session: {}", path, std::strerror(ENOENT))};
      return;
    }
    engine.cache().retire(std::move(sequence), std::span(loaded->tokens).first(loaded->computed));
  });
  if (!loaded) {
    return ApiError{400, without_folder(context, loaded.error().message), "filename", ""};
  }
  runtime::SlotText restored;
  restored.tokens = loaded->tokens;
  restored.sampler = loaded->sampler;
  KTX_TRY(read_note(*context.model, loaded->note, restored));
  if (!scheduler.set_slot_text(slot, restored, owner)) {
    return ApiError{409, fmt::format("slot {} is busy", slot), "id", "busy"};
  }
  send_json(reply, {{"id_slot", slot},
                    {"filename", name},
                    {"n_restored", loaded->tokens.size()},
                    {"n_answered", restored.answered},
                    {"n_computed", loaded->computed},
                    {"tokens", loaded->tokens}});
  return {};
}

}  // namespace ktx::server
