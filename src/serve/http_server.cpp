#include "serve/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <list>
#include <optional>

#include "core/text.h"
#include "serve/loop_exchange.h"

namespace tessera::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Protocol = asio::generic::stream_protocol;
using Stream = beast::basic_stream<Protocol>;
using boost::system::error_code;

constexpr uint64_t kMostDiscarded = uint64_t{64} << 20;  // bytes of a refused body
constexpr size_t kMostBuffered = 262144;                 // bytes that are read but not parsed
constexpr double kHandshake = 0.2, kIdleGrace = 1;       // seconds that connections have while draining

std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

struct Place {
  Protocol::endpoint endpoint;
  std::string socket_file;  // "" for TCP
};

Place place_of(const std::string& words) {
  if (words.starts_with("unix:")) {
    const std::string file = words.substr(5);
    if (file.empty() || file.size() > 100)
      fail_usage("'", printable(words), "': the path of a socket has 1 to 100 bytes");
    return {asio::local::stream_protocol::endpoint(file), file};
  }
  const size_t colon = words.rfind(':');
  std::string host = words.substr(0, colon);
  const int64_t port = colon == std::string::npos ? -1 : parse_int(words.substr(colon + 1)).value_or(-1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error || port < 0 || port > 65535)
    fail_usage("'", printable(words),
               "', must be ADDRESS:PORT as 127.0.0.1:8080 or [::1]:8080, or unix:FILE");
  return {asio::ip::tcp::endpoint(address, static_cast<uint16_t>(port)), ""};
}

// Removes a socket that no process listens on.
void remove_stale(const Place& place, asio::io_context& loop) {
  struct stat info {};
  if (place.socket_file.empty() || ::lstat(place.socket_file.c_str(), &info) != 0) return;
  if (!S_ISSOCK(info.st_mode))
    fail_usage("'", place.socket_file, "' exists and is no socket: name another file");
  Protocol::socket probe(loop);
  error_code error;
  probe.connect(place.endpoint, error);
  if (!error) fail_usage("'", place.socket_file, "' is in use by another process");
  ::unlink(place.socket_file.c_str());
}

// The status of a request that cannot be read; 0: the connection is over, nobody reads an answer.
int status_of(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  return error.category() == make_error_code(http::error::bad_method).category() ? 400 : 0;
}

}  // namespace

struct HttpServer::State {
  struct Session {
    explicit Session(Protocol::socket socket) : stream(std::move(socket)), timer(stream.get_executor()) {}
    Stream stream;
    beast::flat_buffer buffer{kMostBuffered};
    asio::steady_timer timer;  // of limit()
    uint64_t turn = 0;
    bool late = false;
    bool idle = true, keep = true;
    uint64_t counted = 0;  // bytes of the body, in held_bytes
  };
  using Parser = http::request_parser<http::string_body>;

  State(const HttpLimits& given, Handler handle) : limits(given), handler(std::move(handle)) {
    limits.connections = connections_that_fit(limits.connections);
  }

  void listen(const std::string& words) {
    Place place = place_of(words);
    remove_stale(place, loop);
    error_code error;
    acceptor.open(place.endpoint.protocol(), error);
    if (!error && place.socket_file.empty())
      acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(place.endpoint, error);
    if (!error) acceptor.listen(1024, error);
    if (error) fail_usage("cannot listen on ", words, ": ", error.message());
    if (!place.socket_file.empty()) ::chmod(place.socket_file.c_str(), 0600);
    socket_file = place.socket_file;
    address = socket_file.empty() ? "http://" + bound_address() : words;
    asio::co_spawn(loop, accept(), asio::detached);
  }

  std::string bound_address() {
    const Protocol::endpoint generic = acceptor.local_endpoint();
    asio::ip::tcp::endpoint bound;
    std::memcpy(bound.data(), generic.data(), std::min(generic.size(), bound.capacity()));
    const std::string host = bound.address().to_string();
    return (bound.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(bound.port());
  }

  asio::awaitable<void> accept() {
    while (acceptor.is_open()) {
      auto [error, socket] = co_await acceptor.async_accept(kAwait);
      if (error == asio::error::operation_aborted) co_return;
      if (error) {  // no file descriptor is left, or the client has disconnected
        asio::steady_timer pause(loop, std::chrono::milliseconds(50));
        co_await pause.async_wait(kAwait);
        continue;
      }
      begin(std::move(socket));
    }
  }

  void begin(Protocol::socket socket) {
    if (std::ssize(sessions) >= limits.connections) return;  // closes it
    const int one = 1;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &one,
                 sizeof one);  // fails for Unix sockets
    asio::co_spawn(loop, serve(std::make_shared<Session>(std::move(socket))), asio::detached);
  }

  asio::awaitable<void> serve(std::shared_ptr<Session> session) {
    const auto place = sessions.insert(sessions.end(), session);
    do co_await serve_one(session);
    while (session->keep);  // a caller that was promised another request may have sent it
    error_code ignored;
    session->stream.socket().shutdown(asio::socket_base::shutdown_both, ignored);
    sessions.erase(place);
    finish_if_drained();
  }

  // Reads one request and writes its response. The connection is closed unless `keep` is still true.
  asio::awaitable<void> serve_one(const std::shared_ptr<Session>& session) {
    Session& s = *session;
    s.idle = true, s.keep = false;
    if (s.buffer.size() == 0) {
      error_code ignored;
      if (closes_idle && s.stream.socket().available(ignored) == 0) co_return;
      s.stream.expires_after(duration_of(limits.idle_seconds));
      auto [error, bytes] = co_await s.stream.async_read_some(s.buffer.prepare(4096), kAwait);
      if (error) co_return;
      s.buffer.commit(bytes);
    }
    s.idle = false;
    Parser parser;
    parser.header_limit(limits.header_bytes);
    parser.body_limit(limits.body_bytes);
    const int status = co_await read(session, parser);
    ++s.turn, s.timer.cancel();
    if (status < 0) co_return;
    if (status > 0) {
      release(s);
      co_return co_await refuse(s, status);
    }
    co_await respond(session, parser.release());
    release(s);
  }

  void release(Session& s) { held_bytes -= std::exchange(s.counted, 0); }

  // Ends the reads of a request after `seconds`. The stream's own limit would close the connection before an answer.
  static void limit(const std::shared_ptr<Session>& session, double seconds) {
    session->stream.expires_never();
    after(session->timer, seconds, [weak = std::weak_ptr(session), turn = ++session->turn] {
      const auto s = weak.lock();
      if (!s || s->turn != turn) return;
      s->late = true;
      error_code ignored;
      s->stream.socket().cancel(ignored);
    });
  }

  // The result of read() after a read that failed.
  static int failed(const Session& s, const error_code& error) {
    return s.late ? 408 : status_of(error) > 0 ? status_of(error) : -1;
  }

  // Beast 1.81 limits each read of a header, not their sum: the bytes are counted here. Results are those of read().
  asio::awaitable<int> read_header(Session& s, Parser& parser) {
    for (uint64_t header = 0;;) {
      error_code error;
      const size_t used = s.buffer.size() > 0 ? parser.put(s.buffer.data(), error) : 0;
      s.buffer.consume(used);
      header += used;
      if (error && error != http::error::need_more) co_return std::max(400, status_of(error));
      const bool whole = parser.is_header_done();
      if (header + (whole ? 0 : s.buffer.size()) > limits.header_bytes) co_return 431;
      if (whole) co_return 0;
      if (s.late) co_return 408;
      auto [failure, bytes] = co_await s.stream.async_read_some(s.buffer.prepare(4096), kAwait);
      if (failure) co_return failed(s, failure);
      s.buffer.commit(bytes);
    }
  }

  // Returns 0 once the request is complete, the status of an error, or -1 if nobody reads an answer.
  asio::awaitable<int> read(const std::shared_ptr<Session>& session, Parser& parser) {
    Session& s = *session;
    limit(session, limits.header_seconds);
    if (const int status = co_await read_header(s, parser); status != 0) co_return status;
    const auto length = parser.content_length();
    if (parser.get().method() == http::verb::post && !length && !parser.chunked()) co_return 411;
    if (length && held_bytes + *length > limits.all_bodies_bytes) co_return 429;
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, 11);
      co_await http::async_write(s.stream, go_on, kAwait);
    }
    limit(session, limits.body_seconds);
    while (!parser.is_done()) {
      if (s.late) co_return 408;
      auto [failure, bytes] = co_await http::async_read_some(s.stream, s.buffer, parser, kAwait);
      if (failure) co_return failed(s, failure);
      const uint64_t size = parser.get().body().size();
      held_bytes += size - s.counted, s.counted = size;
      if (held_bytes > limits.all_bodies_bytes) co_return 429;
    }
    co_return 0;
  }

  // Answers a request that was not read completely, and closes. For a moment, further bytes are read and
  // discarded, since a reset could destroy the answer before the client reads it.
  asio::awaitable<void> refuse(Session& s, int status) {
    HttpResponse response = error_response(status, refusal_reason(status));
    if (status == 429) response.headers.emplace_back("Retry-After", "1");
    co_await write(s, std::move(response), 11, /*keep=*/false);
    error_code ignored;
    s.stream.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    s.stream.expires_after(std::chrono::seconds(2));
    std::string waste(65536, '\0');
    for (uint64_t seen = 0; seen < kMostDiscarded;) {
      auto [error, bytes] = co_await s.stream.async_read_some(asio::buffer(waste), kAwait);
      if (error) break;
      seen += bytes;
    }
  }

  asio::awaitable<void> respond(const std::shared_ptr<Session>& session,
                                http::request<http::string_body> request) {
    Session& s = *session;
    const auto exchange = std::make_shared<LoopExchange>(loop);
    const bool keep = request.keep_alive();
    const unsigned version = request.version();
    HttpRequest plain{std::string(request.method_string()), std::string(request.target()),
                      std::move(request.body())};
    for (const auto& field : request)
      plain.headers.emplace_back(lower(std::string(field.name_string())), std::string(field.value()));
    const bool head_only = request.method() == http::verb::head;
    watch(session, exchange);
    handler(std::move(plain), exchange);
    while (!exchange->head && !exchange->gone) co_await exchange->wait();
    if (!exchange->head) co_return;
    s.keep = keep && !draining;
    if (exchange->streams)
      co_await stream(s, *exchange, version);
    else
      co_await write(s, std::move(*exchange->head), version, s.keep, head_only);
    exchange->complete = true;
    error_code ignored;
    s.stream.socket().cancel(ignored);  // the watch
  }

  // Calls leave() of the exchange if the client closes the connection.
  void watch(const std::shared_ptr<Session>& session, const std::shared_ptr<LoopExchange>& exchange) {
    session->stream.socket().async_wait(asio::socket_base::wait_read, [session, exchange](error_code error) {
      if (error || exchange->complete) return;
      char byte = 0;
      const ssize_t seen =
          ::recv(session->stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (seen == 0 || (seen < 0 && errno != EAGAIN && errno != EINTR)) exchange->leave();
    });
  }

  template <class Message>
  static void fill_head(Message& message, HttpResponse& response, bool keep) {
    message.set(http::field::server, "tessera");
    message.set(http::field::content_type, response.type);
    message.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : response.headers) message.set(name, value);
    message.keep_alive(keep);
  }

  asio::awaitable<void> write(Session& s, HttpResponse response, unsigned version, bool keep,
                              bool head_only = false) {
    http::response<http::string_body> message(static_cast<http::status>(response.status), version);
    fill_head(message, response, keep);
    message.body() = std::move(response.body);
    message.prepare_payload();
    if (head_only) message.body().clear();
    s.stream.expires_after(duration_of(limits.write_seconds));
    auto [error, bytes] = co_await http::async_write(s.stream, message, kAwait);
    if (error) s.keep = false;
  }

  asio::awaitable<void> stream(Session& s, LoopExchange& exchange, unsigned version) {
    http::response<http::empty_body> message(static_cast<http::status>(exchange.head->status), version);
    s.keep = false;
    fill_head(message, *exchange.head, false);
    if (version >= 11) message.chunked(true);
    http::response_serializer<http::empty_body> serializer(message);
    s.stream.expires_after(duration_of(limits.write_seconds));
    auto [error, ignored] = co_await http::async_write_header(s.stream, serializer, kAwait);
    while (!error && !exchange.gone) {
      if (exchange.parts.empty() && exchange.ended) break;
      if (exchange.parts.empty()) {
        co_await exchange.wait();
        continue;
      }
      const std::string part = std::move(exchange.parts.front());
      exchange.parts.pop_front();
      s.stream.expires_after(duration_of(limits.write_seconds));
      auto [failure, bytes] =
          version >= 11 ? co_await asio::async_write(s.stream, http::make_chunk(asio::buffer(part)), kAwait)
                        : co_await asio::async_write(s.stream, asio::buffer(part), kAwait);
      error = failure;
    }
    if (!error && !exchange.gone && version >= 11)
      co_await asio::async_write(s.stream, http::make_chunk_last(), kAwait);
    if (error) exchange.leave();
  }

  asio::awaitable<void> repeat(double seconds, std::function<void()> act) {
    asio::steady_timer timer(loop);
    while (!draining) {
      timer.expires_after(duration_of(seconds));
      co_await timer.async_wait(kAwait);
      act();
    }
  }

  void drain(double seconds) {
    if (std::exchange(draining, true)) return;
    remove_socket_file();
    refuse_new_handshakes(acceptor.native_handle());
    after(handshake, kHandshake, [this] { close_acceptor(); });
    after(grace, kIdleGrace, [this] { close_idle(); });
    after(deadline, seconds, [this] { loop.stop(); });
  }

  // Another server may then use the name.
  void remove_socket_file() {
    if (const std::string file = std::exchange(socket_file, ""); !file.empty()) ::unlink(file.c_str());
  }

  static void after(asio::steady_timer& timer, double seconds, std::function<void()> act) {
    timer.expires_after(duration_of(seconds));
    timer.async_wait([act = std::move(act)](error_code error) {
      if (!error) act();
    });
  }

  // Accepts the connections that are complete, and no others.
  void close_acceptor() {
    error_code error, ignored;
    acceptor.non_blocking(true, error);
    while (!error || error == asio::error::connection_aborted) {
      Protocol::socket socket(loop);
      acceptor.accept(socket, error);
      if (!error) begin(std::move(socket));
    }
    acceptor.close(ignored);
    finish_if_drained();
  }

  // Closes connections without a request. A request that has arrived meanwhile is answered.
  void close_idle() {
    closes_idle = true;
    error_code ignored;
    for (const auto& session : sessions)
      if (session->idle && session->stream.socket().available(ignored) == 0)
        session->stream.socket().cancel(ignored);
  }

  void finish_if_drained() {
    if (draining && !acceptor.is_open() && sessions.empty()) loop.stop();
  }

  asio::io_context loop{1};
  HttpLimits limits;
  Handler handler;
  asio::basic_socket_acceptor<Protocol> acceptor{loop};
  asio::steady_timer handshake{loop}, grace{loop}, deadline{loop};
  std::list<std::shared_ptr<Session>> sessions;
  std::list<asio::signal_set> signals;
  std::string address, socket_file;
  uint64_t held_bytes = 0;
  bool draining = false, closes_idle = false;
};

HttpServer::HttpServer(const std::string& place, const HttpLimits& limits, Handler handler)
    : state_(std::make_unique<State>(limits, std::move(handler))) {
  state_->listen(place);
}

HttpServer::~HttpServer() { state_->remove_socket_file(); }

std::string HttpServer::address() const { return state_->address; }

int64_t HttpServer::connections() const { return std::ssize(state_->sessions); }

void HttpServer::on_signal(int signal, std::function<void()> act) {
  asio::signal_set& set = state_->signals.emplace_back(state_->loop, signal);
  const auto again = std::make_shared<std::function<void()>>();
  *again = [&set, act = std::move(act), weak = std::weak_ptr(again)] {
    set.async_wait([act, next = weak.lock()](error_code error, int) {
      if (error) return;
      act();
      (*next)();
    });
  };
  (*again)();
}

void HttpServer::post(std::function<void()> act) { asio::post(state_->loop, std::move(act)); }

void HttpServer::every(double seconds, std::function<void()> act) {
  asio::co_spawn(state_->loop, state_->repeat(seconds, std::move(act)), asio::detached);
}

void HttpServer::run() { state_->loop.run(); }

void HttpServer::drain(double seconds) { state_->drain(seconds); }

}  // namespace tessera::serve
