// include/ktx/ktx.h over Engine, Session and Tokenizer.
//
// Nothing of C++ crosses the line: errors become a status and a message of the calling thread, and
// what is thrown (memory that is not there) becomes such a message as well.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "include/ktx/ktx.h"
#include "lib/images/decode.h"
#include "lib/images/patches.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/images/image_reader.h"
#include "lib/runtime/images/image_tokens.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/runtime/session/session.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace {

using ktx::Error;
using ktx::Result;
using ktx::runtime::Outcome;

// What plan and sessions share; the last of them ends it.
struct Opened {
  std::unique_ptr<ktx::runtime::Engine> engine;
  ktx::text::Tokenizer tokenizer;
  std::string path;
  ktx::runtime::EngineOptions options;
  std::mutex mutex;  // an engine serves one thread at a time
  std::unique_ptr<ktx::runtime::ImageReader> reader = nullptr;  // with the first image
};

thread_local std::string last_error;

ktx_status failed(std::string message) {
  last_error = std::move(message);
  return KTX_FAILED;
}

// Calls `body`, which returns a status, and lets nothing fly out of it.
template <class Body>
ktx_status guarded(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return failed("not enough memory");
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("unknown exception");
  }
}

ktx_status status_of(Outcome outcome, const ktx::runtime::Engine& engine) {
  switch (outcome) {
    case Outcome::Ok:
      return KTX_OK;
    case Outcome::ContextFull:
      last_error = fmt::format("the context of {} tokens is full", engine.ctx());
      return KTX_CONTEXT_FULL;
    case Outcome::CacheFull:
      last_error = "the cache is full: free or truncate a session, or open the plan for more";
      return KTX_CACHE_FULL;
    case Outcome::Stopped:
      break;
  }
  return failed("the computation was stopped");
}

// Options of a caller that may know fewer fields than we do.
Result<ktx::runtime::EngineOptions> read_options(const ktx_options* given) {
  ktx::runtime::EngineOptions options;
  if (!given) return options;
  if (given->size < sizeof given->size || given->size > 4096) {
    return Error{fmt::format("ktx_options.size is {}, expected sizeof(ktx_options), {}",
                             given->size, sizeof(ktx_options))};
  }
  ktx_options known = {};
  std::memcpy(&known, given, std::min(given->size, sizeof known));
  if (known.threads < 0 || known.context < 0 || known.sessions < 0) {
    return Error{"a negative number in ktx_options; 0 means the default"};
  }
  options.threads = known.threads;
  if (known.exact != 0) options.precision = ktx::runtime::Precision::Exact;
  if (known.context > 0) options.ctx = known.context;
  if (known.sessions > 0) options.max_batch = known.sessions;
  options.verify = known.verify != 0;
  return options;
}

Result<std::shared_ptr<Opened>> open_plan(const char* path, const ktx_options* given) {
  const ktx::runtime::EngineOptions options = KTX_TRY(read_options(given));
  auto engine = KTX_TRY(ktx::runtime::Engine::open(path, options));
  auto data = ktx::text::parse_tokenizer_data(engine->plan().tokenizer);
  if (!data) return Error{fmt::format("{}: {}", path, data.error().message)};
  auto tokenizer = ktx::text::Tokenizer::create(data.take());
  if (!tokenizer) return Error{fmt::format("{}: {}", path, tokenizer.error().message)};
  return std::shared_ptr<Opened>(
      new Opened{std::move(engine), tokenizer.take(), path, options, {}});
}

// An image of a caller as the model's rows.
Result<ktx::runtime::ReadImage> read_pixels(Opened& opened, const uint8_t* rgb, int64_t width,
                                            int64_t height) {
  if (!opened.engine->plan().facts.takes_images) {
    return Error{"the plan takes no images; compile the model with its projector (--mmproj FILE)"};
  }
  KTX_TRY(ktx::images::check_size(width, height, {}));
  if (!opened.reader) {
    ktx::runtime::EngineOptions options = opened.options;
    options.pool = opened.engine->pool();
    opened.reader =
        KTX_TRY(ktx::runtime::ImageReader::open(opened.path, options, opened.engine->ctx()));
  }
  const ktx::images::Image image{width, height, {rgb, rgb + 3 * width * height}};
  return opened.reader->read(ktx::images::patches_of(image, opened.reader->facts()));
}

// Copies as much as there is room for, and always stores how much there is.
template <class T>
ktx_status copy_out(const T* from, size_t count, T* to, size_t capacity, size_t* stored,
                    const char* what) {
  *stored = count;
  std::copy_n(from, std::min(count, capacity), to);
  if (count <= capacity) return KTX_OK;
  last_error = fmt::format("there is room for {} of {} {}", capacity, count, what);
  return KTX_TOO_SMALL;
}

}  // namespace

struct ktx_plan {
  std::shared_ptr<Opened> opened;
};

struct ktx_session {
  std::shared_ptr<Opened> opened;
  ktx::runtime::Session session;
  bool fresh = false;  // session.logits() follow the last token
  std::vector<ktx::runtime::ImageTokens> images = {};

  // `length`, or where the image begins that a text of so many tokens would cut. An image may be
  // several runs, line by line: those from one with its first row on.
  int64_t outside_images(int64_t length) const {
    int64_t first = 0;
    for (size_t i = 0; i < images.size(); ++i) {
      if (images[i].first_row == 0) first = images[i].first;
      const bool last = i + 1 == images.size() || images[i + 1].first_row == 0;
      if (last && first < length && length < images[i].end()) return first;
    }
    return length;
  }
  // Those that are in the text as a whole are its.
  void show_images() {
    session.truncate(outside_images(length()));
    std::erase_if(images, [&](const auto& image) { return image.end() > length(); });
    session.show_images(images);
  }
  int64_t length() const { return std::ssize(session.tokens()); }
};

const char* ktx_version(void) {
  return KTX_VERSION;
}

const char* ktx_error_message(void) {
  return last_error.c_str();
}

ktx_status ktx_plan_open(const char* path, const ktx_options* options, ktx_plan** plan) {
  if (!plan) return failed("ktx_plan_open: no place for the plan");
  *plan = nullptr;
  if (!path) return failed("ktx_plan_open: no path");
  return guarded([&] {
    auto opened = open_plan(path, options);
    if (!opened) return failed(opened.error().message);
    *plan = new ktx_plan{opened.take()};
    return KTX_OK;
  });
}

void ktx_plan_close(ktx_plan* plan) {
  delete plan;
}

int64_t ktx_plan_vocabulary(const ktx_plan* plan) {
  return plan->opened->engine->vocab_size();
}

int64_t ktx_plan_context(const ktx_plan* plan) {
  return plan->opened->engine->ctx();
}

ktx_status ktx_tokenize(const ktx_plan* plan, const char* text, size_t bytes, int32_t* ids,
                        size_t capacity, size_t* count) {
  return guarded([&] {
    const std::vector<int32_t> found =
        plan->opened->tokenizer.encode_prompt(std::string_view(text, bytes));
    return copy_out(found.data(), found.size(), ids, capacity, count, "tokens");
  });
}

ktx_status ktx_text(const ktx_plan* plan, const int32_t* ids, size_t count, char* text,
                    size_t capacity, size_t* bytes) {
  return guarded([&] {
    const std::string found = plan->opened->tokenizer.decode(std::span(ids, count));
    return copy_out(found.data(), found.size(), text, capacity, bytes, "bytes");
  });
}

int ktx_is_end(const ktx_plan* plan, int32_t id) {
  return plan->opened->tokenizer.is_eog(id) ? 1 : 0;
}

ktx_status ktx_session_new(ktx_plan* plan, ktx_session** session) {
  if (!session) return failed("ktx_session_new: no place for the session");
  *session = nullptr;
  return guarded([&] {
    Opened& opened = *plan->opened;
    const std::lock_guard lock(opened.mutex);
    auto sampler = ktx::runtime::Sampler::create({}, opened.engine->vocab_size());
    if (!sampler) return failed(sampler.error().message);
    *session = new ktx_session{plan->opened, ktx::runtime::Session(*opened.engine, sampler.take())};
    return KTX_OK;
  });
}

void ktx_session_free(ktx_session* session) {
  if (!session) return;
  const std::shared_ptr<Opened> opened = session->opened;  // outlives the session
  const std::lock_guard lock(opened->mutex);
  delete session;
}

ktx_status ktx_session_feed(ktx_session* session, const int32_t* ids, size_t count) {
  if (count == 0) return failed("ktx_session_feed: no tokens");
  return guarded([&] {
    const std::lock_guard lock(session->opened->mutex);
    session->fresh = false;
    const Result<Outcome> outcome = session->session.prefill(std::span(ids, count));
    if (!outcome) return failed(outcome.error().message);
    session->fresh = *outcome == Outcome::Ok;
    return status_of(*outcome, *session->opened->engine);
  });
}

ktx_status ktx_session_feed_image(ktx_session* session, const uint8_t* rgb, int64_t width,
                                  int64_t height) {
  if (!rgb) return failed("ktx_session_feed_image: no pixels");
  return guarded([&] {
    Opened& opened = *session->opened;
    const std::lock_guard lock(opened.mutex);
    if (session->length() == 0) return failed("an image needs a text before it: feed one first");
    const auto image = read_pixels(opened, rgb, width, height);
    if (!image) return failed(image.error().message);
    const ktx::plan::ImageFacts& facts = opened.reader->facts();
    std::vector<int32_t> ids = opened.tokenizer.encode(facts.before, {.parse_special = true});
    const auto line_end = opened.tokenizer.encode(facts.line_end, {.parse_special = true});
    std::vector<ktx::runtime::ImageTokens> runs;
    ktx::runtime::add_image(*image, facts, line_end, ids, runs);
    const auto behind = opened.tokenizer.encode(facts.behind, {.parse_special = true});
    ids.insert(ids.end(), behind.begin(), behind.end());
    session->fresh = false;
    for (ktx::runtime::ImageTokens& run : runs) {
      run.first += session->length();
      session->images.push_back(std::move(run));
    }
    session->session.show_images(session->images);
    const Result<Outcome> outcome = session->session.prefill(ids);
    session->show_images();
    if (!outcome) return failed(outcome.error().message);
    session->fresh = *outcome == Outcome::Ok;
    return status_of(*outcome, *opened.engine);
  });
}

ktx_status ktx_session_logits(ktx_session* session, const float** logits, size_t* count) {
  *logits = nullptr;
  *count = 0;
  return guarded([&] {
    const std::lock_guard lock(session->opened->mutex);
    ktx::runtime::Session& text = session->session;
    if (text.tokens().empty()) return failed("there are no logits before a token has been fed");
    if (!session->fresh) {  // the last token is computed again, to the same bits
      const std::vector<int32_t> tokens(text.tokens().begin(), text.tokens().end());
      const Result<Outcome> outcome = text.set_prompt(tokens);
      if (!outcome) return failed(outcome.error().message);
      if (*outcome != Outcome::Ok) return status_of(*outcome, *session->opened->engine);
      session->fresh = true;
    }
    *logits = text.logits().data();
    *count = text.logits().size();
    return KTX_OK;
  });
}

int64_t ktx_session_length(const ktx_session* session) {
  return session->length();
}

void ktx_session_truncate(ktx_session* session, int64_t length) {
  const std::lock_guard lock(session->opened->mutex);
  length = session->outside_images(length);
  if (length < session->length()) session->fresh = false;
  session->session.truncate(std::max<int64_t>(length, 0));
  session->show_images();
}

ktx_status ktx_session_save(ktx_session* session, const char* path) {
  return guarded([&] {
    const std::lock_guard lock(session->opened->mutex);
    const ktx::Status saved = session->session.save(path);
    return saved ? KTX_OK : failed(saved.error().message);
  });
}

ktx_status ktx_session_restore(ktx_session* session, const char* path) {
  return guarded([&] {
    const std::lock_guard lock(session->opened->mutex);
    session->fresh = false;
    const Result<std::string> note = session->session.load(path);
    session->images.clear();  // files hold no texts with images
    session->show_images();
    return note ? KTX_OK : failed(note.error().message);
  });
}
