// POST /predict: several requests in one, in the form that Google's Vertex AI sends to containers.
//
//   {"instances": [{"@requestFormat": "chatCompletions", "messages": [...]}, ...]}
//   {"predictions": [{"choices": [...]}, ...]}
//
// A format is the path of an endpoint in camel case ("chatCompletions", "applyTemplate"), or the
// path. Instances are answered beside each other, by one model; a mistake is the prediction of its
// instance alone. Nothing is streamed.
#include <cctype>
#include <mutex>
#include <utility>

#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/models/requested_model.h"
#include "lib/text/exact_json.h"

namespace ktx::server {
namespace {

constexpr size_t kMostInstances = 128;

// "/v1/chat/completions" -> "chatCompletions"
std::string format_of(std::string_view path) {
  if (path.starts_with("/v1")) path.remove_prefix(3);
  path.remove_prefix(1);
  std::string name;
  bool upper = false;
  for (const char c : path) {
    if (c == '/' || c == '-' || c == '_') {
      upper = true;
    } else {
      name += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      upper = false;
    }
  }
  return name;
}

// Endpoints that answer a text with JSON, OpenAI's first.
constexpr const char* kPredictors[] = {
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings",  "/v1/responses", "/v1/messages",
    "/completion",          "/infill",         "/apply-template", "/tokenize",     "/detokenize"};

// The route of a format; null: there is none.
const Route* route_of(const std::string& format) {
  for (const char* path : kPredictors) {
    if (format != path && format != format_of(path)) continue;
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    return find_route(request).route;
  }
  return nullptr;
}

// The predictions of one request, sent when the last one is there.
class Predictions : public std::enable_shared_from_this<Predictions> {
 public:
  Predictions(HttpReplyPtr client, size_t count)
      : client_(std::move(client)), answers_(count), open_(count) {}

  HttpReply& client() { return *client_; }

  void set(size_t index, Json answer) {
    {
      const std::lock_guard lock(mutex_);
      answers_[index] = std::move(answer);
      if (--open_ > 0) return;
    }
    client_->send(200, "application/json", dump(Json{{"predictions", std::move(answers_)}}));
  }

  void watch() {
    client_->on_gone([self = shared_from_this()] {
      std::vector<std::function<void()>> calls;
      {
        const std::lock_guard lock(self->mutex_);
        self->gone_ = true;
        calls.swap(self->on_gone_);
      }
      for (const auto& call : calls) call();
    });
  }

  void on_gone(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      if (!gone_) return on_gone_.push_back(std::move(call));
    }
    call();
  }

 private:
  const HttpReplyPtr client_;
  std::mutex mutex_;
  std::vector<Json> answers_;
  size_t open_;
  bool gone_ = false;
  std::vector<std::function<void()>> on_gone_;
};

// What an endpoint answers to one instance.
class InstanceReply final : public HttpReply {
 public:
  InstanceReply(std::shared_ptr<Predictions> all, size_t index)
      : all_(std::move(all)), index_(index) {}

  void send(int, std::string_view, std::string body, const HttpHeaders&) override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(done_, true)) return;
    Json answer = text::parse_json(body);
    all_->set(index_, answer.is_discarded() ? Json(std::move(body)) : std::move(answer));
  }
  void begin(int status, std::string_view type, const HttpHeaders& headers) override {
    send(status, type, R"({"error":{"message":"predictions cannot be streams"}})", headers);
  }
  void write(std::string) override {}
  void end() override {}
  void on_gone(std::function<void()> call) override { all_->on_gone(std::move(call)); }
  bool begun() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void set_error(std::string what) override { all_->client().set_error(std::move(what)); }
  void add_note(const std::string& what) override { all_->client().add_note(what); }
  void add_tokens(int64_t prompt, int64_t cached, int64_t completion) override {
    all_->client().add_tokens(prompt, cached, completion);
  }

 private:
  const std::shared_ptr<Predictions> all_;
  const size_t index_;
  mutable std::mutex mutex_;
  bool done_ = false;
};

ApiStatus answer_instance(const ServerContext& context, const HttpRequest& request,
                          const Json& instance, const HttpReplyPtr& reply) {
  if (!instance.is_object()) return ApiError{400, "an instance must be an object", "instances", ""};
  const std::string format = string_or(instance, "@requestFormat", "");
  const Route* route = route_of(format);
  if (route == nullptr) {
    return ApiError{400,
                    "'@requestFormat' must be the name of an endpoint, such as \"chatCompletions\"",
                    "@requestFormat", ""};
  }
  Json body = instance;
  body.erase("@requestFormat");
  body["stream"] = false;
  HttpRequest inner = request;
  inner.path = route->path;
  inner.body = dump(body);
  ServerContext own = context;
  own.lora = context.model->adapters.choice(requested_model(inner));
  own.asker->counts_only = false;  // all share it, and /apply-template sets it
  const ApiStatus answered = route->endpoint(own, inner, reply);
  if (!answered) send_in_shape(inner, *reply, answered.error());
  return {};
}

}  // namespace

ApiStatus post_predict(const ServerContext& context, const HttpRequest& request,
                       const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const Json* instances = in.list("instances");
  if (instances == nullptr) in.fail("instances", "'instances' is missing");
  if (instances != nullptr && instances->size() > kMostInstances) {
    in.fail("instances", "'instances' has more than 128 items");
  }
  KTX_TRY(in.status());
  if (instances->empty()) {
    send_json(reply, {{"predictions", Json::array()}});
    return {};
  }
  const auto all = std::make_shared<Predictions>(reply, instances->size());
  all->watch();
  all->on_gone([asker = context.asker] { asker->gone = true; });
  for (size_t i = 0; i < instances->size(); ++i) {
    const auto one = std::make_shared<InstanceReply>(all, i);
    ApiStatus answered;
    try {
      answered = answer_instance(context, request, (*instances)[i], one);
    } catch (const Json::exception& wrong) {
      answered = ApiError{400, std::string("a field has a wrong type: ") + wrong.what(), "", ""};
    }
    if (!answered) send_error(*one, answered.error());
  }
  return {};
}

}  // namespace ktx::server
