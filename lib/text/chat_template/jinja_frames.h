// Scopes and output buffers as RAII objects.
#pragma once

#include <memory>
#include <string>

#include "lib/text/chat_template/jinja_interpreter.h"

namespace ktx::text::jinja {

// A new scope inside `parent` while this lives.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& in, Scope* parent)
      : in_(in), saved_(in.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    in_.scope_ = scope_.get();
  }
  ~ScopeGuard() {
    in_.scope_ = saved_;
    if (!scope_->captured) return;
    in_.meter_.live_bytes += 512;  // never given back: the scope lives on
    in_.kept_.push_back(std::move(scope_));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& in_;
  Scope* saved_;
  std::unique_ptr<Scope> scope_;
};

// Collects what is printed while this lives.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& in) : in_(in), saved_(in.out_) { in_.out_ = &text_; }
  ~Capture() { release(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Value take() {
    release();
    return make_string(in_.meter_, std::move(text_.text), false, std::move(text_.outside));
  }

 private:
  void release() {
    if (in_.out_ != &text_) return;
    in_.out_ = saved_;
    in_.meter_.live_bytes -= static_cast<int64_t>(text_.text.size());
  }

  Interpreter& in_;
  MarkedText* saved_;
  MarkedText text_;
};

}  // namespace ktx::text::jinja
