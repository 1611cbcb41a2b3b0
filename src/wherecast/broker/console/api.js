// Requests to the broker with the session's cookie, and problems (RFC 9457) as errors.

export class ApiProblem extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the broker answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

let csrf = null;
let onSignedOut = () => {};

/** What happens when the session is over. */
export function whenSignedOut(action) {
  onSignedOut = action;
}

async function read(answer) {
  const text = await answer.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return { detail: text.slice(0, 200) };
  }
}

async function send(method, path, body, headers) {
  const options = { method, headers: { ...headers }, credentials: "same-origin", cache: "no-store" };
  if (csrf && method !== "GET") options.headers["X-CSRF-Token"] = csrf;
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`v1/${path}`, options);
  } catch {
    throw new ApiProblem(0, { detail: "the broker cannot be reached" });
  }
  const found = await read(answer);
  if (!answer.ok) throw new ApiProblem(answer.status, found ?? {});
  return found;
}

/** A request; `body` is sent as JSON (a text as it is). Throws ApiProblem. */
export async function call(method, path, body) {
  try {
    return await send(method, path, body);
  } catch (error) {
    if (error.status === 401) onSignedOut();
    throw error;
  }
}

export const get = (path, query) => call("GET", withQuery(path, query));
export const post = (path, body) => call("POST", path, body);

/** A path with those parameters that have a value. */
export function withQuery(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
}

/** A path of parts, each of which may hold any character: at`spaces/${name}/publish`. */
export function at(texts, ...values) {
  return texts.reduce((path, text, n) => path + text + (n < values.length ? encodeURIComponent(values[n]) : ""), "");
}

/** The session of the cookie, or null. */
export async function currentSession() {
  try {
    return keep(await send("GET", "session"));
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export async function signIn(token, once = false) {
  csrf = null;
  return keep(await send("POST", "session", { token, once }));
}

export async function signOut() {
  await send("DELETE", "session");
  csrf = null;
}

function keep(session) {
  csrf = session.csrf;
  return session;
}
