#include "lib/server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "lib/server/answer/answer_job.h"
#include "lib/server/anthropic/anthropic_error.h"
#include "lib/server/models/requested_model.h"
#include "lib/server/ollama/ollama_format.h"
#include "lib/server/request/constraint_fields.h"
#include "lib/server/request/request_images.h"
#include "lib/support/json_nesting.h"

namespace ktx::server {
namespace {

constexpr size_t kLongestStreamName = 512;
// Requests of one key whose images wait or are looked at; each has a thread. Another key is given
// places beyond (key_quota.h).
constexpr int64_t kMostLooking = 64;
// What images of a request take beside its body, in bodies: their base64 among its JSON values, and
// the files.
constexpr int64_t kBodiesOfImages = 2;

ApiError limit_reached(int wait_seconds) {
  return {429, fmt::format("the limit of this key is reached; try again in {} s", wait_seconds), "",
          "rate_limit_exceeded", wait_seconds};
}

HttpOptions with_hooks(HttpOptions http, const AccessOptions& access,
                       std::function<bool(const HttpRequest&, const HttpReplyPtr&)> admit,
                       std::function<void(const HttpLogEntry&)> log) {
  http.admit = std::move(admit);
  http.quick = [](const HttpRequest& request) {
    const RouteMatch match = find_route(request);
    return match.route == nullptr || match.route->quick;
  };
  http.work = [](const HttpRequest& request) {
    if (may_have_images(request.body)) return HttpWork::Images;
    return may_constrain(request.body) ? HttpWork::Long : HttpWork::Short;
  };
  http.more_headers = [access](const HttpRequest& request) {
    HttpHeaders headers = cors_headers(access, request);
    headers.emplace_back("X-Request-Id", request.id);
    if (takes_anthropic_errors(request)) headers.emplace_back("Request-Id", request.id);
    return headers;
  };
  http.fault_body = [](const HttpRequest& request, int& status, std::string_view message) {
    const ApiError error = {status, std::string(message), "", ""};
    if (!takes_anthropic_errors(request)) return dump(to_json(error));
    status = anthropic_status(status);
    return anthropic_error(error, request.id);
  };
  http.log = std::move(log);
  return http;
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      access_(std::make_shared<const AccessOptions>(options_.access)),
      kept_bytes_(static_cast<int64_t>(options_.http.bodies_bytes)),
      looking_(kMostLooking),
      http_(with_hooks(
                options_.http, options_.access,
                [this](const HttpRequest& request, const HttpReplyPtr& reply) {
                  return admit(request, reply);
                },
                [this](const HttpLogEntry& entry) { log(entry); }),
            [this](const HttpRequest& request, const HttpReplyPtr& reply) {
              handle(request, reply);
            }) {}

Server::~Server() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;  // images that wait are looked at no more
  }
  if (options_.fetches) options_.fetches->stop();
  http_.stop();
  // Answers that still run hold the models, too.
  if (models_) models_->stop();
}

Status Server::start() {
  KTX_TRY(open_log());
  return http_.start();
}

Status Server::open_log() {
  if (options_.access_log.empty()) return {};
  LineFile file = options_.access_log == "-"
                      ? LineFile::standard_error()
                      : KTX_TRY(LineFile::open(options_.access_log, LineFile::Old::GoesOn, "{"));
  const std::lock_guard lock(log_mutex_);
  const Status before = log_ ? log_->finish() : Status();
  log_.emplace(std::move(file));
  return before;
}

void Server::set_models(std::shared_ptr<ModelStore> models) {
  const std::lock_guard lock(mutex_);
  models_ = std::move(models);
}

void Server::set_model(std::shared_ptr<ServedModel> model) {
  set_models(std::make_shared<ModelStore>(std::move(model)));
}

void Server::set_keys(std::vector<ApiKey> keys) {
  AccessOptions changed = *access();
  changed.keys = std::move(keys);
  const std::lock_guard lock(mutex_);
  access_ = std::make_shared<const AccessOptions>(std::move(changed));
}

std::shared_ptr<const AccessOptions> Server::access() const {
  const std::lock_guard lock(mutex_);
  return access_;
}

ServerContext Server::context() {
  ServerContext context;
  if (options_.failure) context.failure = options_.failure();
  const std::lock_guard lock(mutex_);
  context.models = models_;
  context.fetches = options_.fetches;
  context.streams = &streams_;
  context.figures = &figures_;
  context.commit = options_.commit;
  context.draining = draining_;
  context.http_counts = [this] { return http_.counts(); };
  context.slot_dir = options_.slot_dir;
  context.request_seconds = options_.request_seconds;
  context.show_slots = options_.show_slots;
  return context;
}

bool Server::drain(std::chrono::milliseconds limit) {
  std::shared_ptr<ModelStore> models;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    models = models_;
  }
  if (options_.fetches) options_.fetches->close();
  bool all = true;
  if (models) {
    models->drain();
    all = models->wait_idle(limit);
    if (!all) {
      models->cancel_all();
      models->wait_idle(std::chrono::seconds(5));
    }
  }
  if (options_.fetches) options_.fetches->stop();
  // What was answered last is still on its way.
  http_.drain();
  for (int i = 0; i < 100 && http_.counts().connections > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return all;
}

Status Server::log_state() {
  const std::lock_guard lock(log_mutex_);
  return log_ ? log_->finish() : Status();
}

void send_in_shape(const HttpRequest& request, HttpReply& reply, const ApiError& error) {
  if (takes_anthropic_errors(request)) return send_anthropic_error(reply, error, request.id);
  const bool ollama = request.path.rfind("/api/", 0) == 0;
  ollama ? send_ollama_error(reply, error) : send_error(reply, error);
}

namespace {

// Where there are several keys, figures of all would tell one client what others do.
ApiStatus may_see_figures(const Route& route, const std::vector<ApiKey>& keys, const ApiKey* key) {
  const bool asked = route.endpoint == get_metrics || route.endpoint == get_stats;
  if (!asked || keys.size() < 2 || (key != nullptr && key->sees_figures)) return {};
  return ApiError{403,
                  "these figures count all keys together: the line of this key in the key file "
                  "needs figures=all",
                  "", "no_figures"};
}

ApiStatus may_change(const ApiKey* key) {
  if (key == nullptr || key->edits_models) return {};
  return ApiError{
      403,
      "this key may not change what other keys get (models, scales of adapters); its line "
      "needs models=edit",
      "", "no_edits"};
}

ApiStatus may_edit(const ServerOptions& options, const ApiKey* key) {
  if (!options.edit_models) {
    return ApiError{403,
                    "plans are not copied and deleted over HTTP, unless the server is started with "
                    "--edit-models",
                    "", "no_edits"};
  }
  return may_change(key);
}

}  // namespace

bool Server::admit(const HttpRequest& request, const HttpReplyPtr& reply) {
  const auto fail = [&](const ApiError& error) {
    send_in_shape(request, *reply, error);
    return false;
  };
  const RouteMatch match = find_route(request);
  const bool open =
      match.route != nullptr &&
      (match.route->open || (options_.public_models && match.route->endpoint == get_models));
  const bool preflight = request.method == "OPTIONS";
  const ApiStatus access = check_access(*this->access(), request, open || preflight);
  // A page that may not call learns so from the headers that its preflight lacks.
  const bool refused = !access && !(preflight && access.error().code == "wrong_origin");
  if (refused) return fail(access.error());
  if (preflight) {
    reply->send(200, "", "");
    return false;
  }
  if (match.route == nullptr) {
    if (!match.allow.empty()) {
      return fail({405,
                   fmt::format("{} does not take {}; it takes {}", request.path, request.method,
                               match.allow),
                   "", "", 0, match.allow});
    }
    return fail(
        {404, fmt::format("nothing at {}{}", request.path, near_route(request.path)), "", ""});
  }
  if (match.route->endpoint != get_health && match.route->endpoint != get_page) {
    const std::lock_guard lock(mutex_);
    if (!models_) return fail({503, "the model is loading", "", "loading", 1});
  }
  return true;
}

void Server::handle(const HttpRequest& request, const HttpReplyPtr& client) {
  if (!admit(request, client)) return;
  const Route& route = *find_route(request).route;
  ServerContext now = context();
  const std::shared_ptr<const AccessOptions> access = this->access();
  const ApiKey* const key = key_of(*access, request);
  now.owner = owner_of(key);
  now.share = share_of(key, request, ++requests_);
  HttpReplyPtr reply = client;
  if (key != nullptr) {
    reply->set_user(now.owner, name_of(*access, *key));
    const bool computes = route.model && !route.quick;
    const int wait = computes ? limits_.take_request(now.owner, *key, KeyLimits::Clock::now()) : 0;
    if (wait > 0) return send_in_shape(request, *reply, limit_reached(wait));
  }
  if (const ApiStatus may = may_see_figures(route, access->keys, key); !may) {
    return send_in_shape(request, *reply, may.error());
  }
  if (route.endpoint == get_page && !options_.web_ui) {
    return send_error(*reply, {404, "this server has no page (--web-ui off)", "", "no_page"});
  }
  const std::string kept(request.header("x-conversation-id"));
  if (route.model && !kept.empty() && kept.size() <= kLongestStreamName && wants_stream(request)) {
    reply = streams_.keep(now.owner, kept, client, [this, owner = now.owner](int64_t tokens) {
      if (!owner.empty()) limits_.add_tokens(owner, tokens);
    });
  }
  if (key != nullptr) {
    // (The reply has what is called when its client leaves, which has this.)
    now.pay_images = [this, access, key, owner = now.owner,
                      weak = std::weak_ptr(reply)](int64_t tokens) -> ApiStatus {
      const int seconds = limits_.take_tokens(owner, *key, tokens, KeyLimits::Clock::now());
      if (seconds > 0) return limit_reached(seconds);
      if (const HttpReplyPtr answer = weak.lock()) answer->add_image_tokens(tokens);
      return {};
    };
  }
  now.may_change = may_change(key);
  now.may_edit = may_edit(options_, key);
  if (!route.model) return answer(route, std::move(now), request, reply);
  const std::string model = now.models->needs_names() ? requested_model(request) : "";
  ModelStore::Found found = now.models->use(model);
  if (found.error) return send_in_shape(request, *reply, *found.error);
  if (found.must_wait) return answer_when_loaded(route, now, model, request, reply);
  now.model = std::move(found.model);
  answer(route, std::move(now), request, reply);
}

std::shared_ptr<ImageAsker> Server::asker_of(const ServerContext& context) {
  const auto asker = std::make_shared<ImageAsker>();
  asker->owner = context.model->scheduler->cache_owner(context.owner);
  asker->share = context.share;
  asker->pay = context.pay_images;
  asker->draining = [this] {
    const std::lock_guard lock(mutex_);
    return draining_;
  };
  if (context.request_seconds > 0) {
    asker->end = std::chrono::steady_clock::now() + std::chrono::seconds(context.request_seconds);
  }
  return asker;
}

void Server::answer(const Route& route, ServerContext context, const HttpRequest& request,
                    const HttpReplyPtr& reply, const std::shared_ptr<const HttpRequest>& kept) {
  if (context.model) {
    reply->set_model(context.model->id);
    context.asker = asker_of(context);
    if (!context.model->adapters.list().empty()) {
      context.lora = context.model->adapters.choice(requested_model(request));
    }
    if (context.model->viewer && !route.quick && may_have_images(request.body)) {
      return answer_with_images(route, context, request, reply, kept);
    }
  }
  answer_now(route, context, request, reply);
}

// On a thread of its own: it may wait for the images of others.
void Server::answer_with_images(const Route& route, const ServerContext& context,
                                const HttpRequest& request, const HttpReplyPtr& reply,
                                std::shared_ptr<const HttpRequest> kept) {
  // An answer that begins has a call of its own.
  reply->on_gone([asker = context.asker] { asker->gone = true; });
  const std::shared_ptr<void> place = looking_.hold(context.share.key);
  if (!place) {
    return send_in_shape(
        request, *reply,
        {429,
         fmt::format("the images of {} requests are looked at or wait for it already; try again "
                     "later",
                     looking_.taken()),
         "", "queue_full", 2});
  }
  if (!kept) kept = keep(request, context.share.key, reply);
  if (!kept) return;
  // A request that is alone is taken, however large it is.
  const auto body = static_cast<int64_t>(request.body.size());
  const auto values = static_cast<int64_t>(std::min(json_tree_bytes(request.body), kMaxTreeBytes));
  const std::shared_ptr<void> parsed =
      hold_bytes(std::min(kBodiesOfImages * body + values, kept_bytes_.most() - body), request,
                 context.share.key, reply);
  if (!parsed) return;
  try {
    http_.run_apart(reply, [this, &route, context, kept, reply, place, parsed] {
      answer_now(route, context, *kept, reply);
    });
  } catch (const std::system_error&) {
    send_in_shape(
        request, *reply,
        {503, "the system has no thread for the images of the request; try again", "", "", 2});
  }
}

void Server::answer_now(const Route& route, const ServerContext& context,
                        const HttpRequest& request, const HttpReplyPtr& reply) {
  // The JSON library throws on fields of a type that was not checked before use; that
  // is the request's mistake, and must not be the end of the server.
  try {
    const ApiStatus answered = route.endpoint(context, request, reply);
    if (!answered) send_in_shape(request, *reply, answered.error());
  } catch (const Json::exception& error) {
    send_in_shape(
        request, *reply,
        {400, fmt::format("a field of the request has a wrong type: {}", error.what()), "", ""});
  }
}

std::shared_ptr<void> Server::hold_bytes(int64_t bytes, const HttpRequest& request,
                                         const std::string& key, const HttpReplyPtr& reply) {
  std::shared_ptr<void> held = kept_bytes_.hold(key, bytes);
  if (!held) {
    send_in_shape(request, *reply,
                  {503, "too many large requests wait for a model or for their images; try again",
                   "", "", 2});
  }
  return held;
}

std::shared_ptr<const HttpRequest> Server::keep(const HttpRequest& request, const std::string& key,
                                                const HttpReplyPtr& reply) {
  const auto bytes = static_cast<int64_t>(request.body.size());
  std::shared_ptr<void> held = hold_bytes(bytes, request, key, reply);
  if (!held) return nullptr;
  struct Kept {
    std::shared_ptr<void> held;
    HttpRequest request;
  };
  const auto kept = std::make_shared<const Kept>(Kept{std::move(held), request});
  return {kept, &kept->request};
}

// Keeps the request until its model is loaded; the worker goes on with others.
void Server::answer_when_loaded(const Route& route, const ServerContext& context,
                                const std::string& model, const HttpRequest& request,
                                const HttpReplyPtr& reply) {
  const std::shared_ptr<const HttpRequest> kept = keep(request, context.share.key, reply);
  if (!kept) return;
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  reply->on_gone([gone] { *gone = true; });
  context.models->wait_for(
      model,
      [this, &route, context, kept, reply](const ModelStore::Found& found) {
        ServerContext now = context;
        now.model = found.model;
        http_.run_later(*kept, reply, [this, &route, now, kept, reply, error = found.error] {
          if (error) return send_in_shape(*kept, *reply, *error);
          answer(route, now, *kept, reply, kept);
        });
      },
      gone);
}

namespace {

// Those of images are paid before they are looked at.
int64_t tokens_to_pay(const HttpFigures& figures) {
  return std::max<int64_t>(0, figures.prompt_tokens - figures.image_tokens) +
         figures.completion_tokens;
}

}  // namespace

void Server::log(const HttpLogEntry& entry) {
  figures_.add(entry);
  const HttpFigures& figures = entry.figures;
  if (!figures.owner.empty()) {
    limits_.add_tokens(figures.owner, tokens_to_pay(figures));
  }
  if (options_.access_log.empty()) return;
  Json json;
  json["time"] = rfc3339(std::chrono::system_clock::now());
  json["request_id"] = entry.id;
  json["client"] = entry.client;
  json["method"] = entry.method;
  json["path"] = entry.path;
  json["status"] = entry.status;
  json["bytes_in"] = entry.bytes_in;
  json["bytes_out"] = entry.bytes_out;
  json["seconds"] = entry.seconds;
  json["gone"] = entry.gone;
  if (!figures.key.empty()) json["key"] = figures.key;
  if (figures.prompt_tokens > 0) {
    json["model"] = figures.model;
    json["prompt_tokens"] = figures.prompt_tokens;
    json["cached_tokens"] = figures.cached_tokens;
    json["completion_tokens"] = figures.completion_tokens;
  }
  if (!figures.notes.empty()) json["notes"] = figures.notes;
  if (!entry.error.empty()) json["error"] = entry.error;
  const std::lock_guard lock(log_mutex_);
  log_->add(dump(json) + "\n");
  log_->flush();
}

}  // namespace ktx::server
