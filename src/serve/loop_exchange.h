// A request between its handler and its response, for the event loop (http_server.cpp).
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "serve/http.h"

namespace tessera::serve {

inline constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

// Its state belongs to the loop.
class LoopExchange final : public Exchange, public std::enable_shared_from_this<LoopExchange> {
 public:
  explicit LoopExchange(boost::asio::io_context& context) : loop_(context), wake_(context) {}

  void reply(HttpResponse response) override {
    in_loop([response = std::move(response)](LoopExchange& self) mutable {
      if (!self.head) self.head = std::move(response), self.ended = true;
    });
  }
  void begin(HttpResponse response) override {
    in_loop([response = std::move(response)](LoopExchange& self) mutable {
      if (!self.head) self.head = std::move(response), self.streams = true;
    });
  }
  void part(std::string bytes) override {
    in_loop([bytes = std::move(bytes)](LoopExchange& self) mutable {
      if (!self.gone && !bytes.empty()) self.parts.push_back(std::move(bytes));
    });
  }
  void end() override {
    in_loop([](LoopExchange& self) { self.ended = true; });
  }
  void on_gone(std::function<void()> call) override {
    in_loop([call = std::move(call)](LoopExchange& self) {
      if (self.gone) return call();
      self.when_gone_ = call;
    });
  }

  void leave() {
    if (std::exchange(gone, true)) return;
    if (const auto call = std::exchange(when_gone_, nullptr); call && !complete) call();
    wake_.cancel();
  }
  boost::asio::awaitable<void> wait() {
    wake_.expires_at(boost::asio::steady_timer::time_point::max());
    co_await wake_.async_wait(kAwait);
  }

  std::optional<HttpResponse> head;
  std::deque<std::string> parts;
  bool streams = false, ended = false, gone = false, complete = false;

 private:
  template <class Act>
  void in_loop(Act act) {
    boost::asio::post(loop_, [self = shared_from_this(), act = std::move(act)]() mutable {
      act(*self);
      self->wake_.cancel();
    });
  }

  boost::asio::io_context& loop_;
  boost::asio::steady_timer wake_;
  std::function<void()> when_gone_;
};

}  // namespace tessera::serve
