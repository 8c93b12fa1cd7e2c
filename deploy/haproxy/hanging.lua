-- Ends what waits for a replica that has been down for two seconds but still holds connections: a process that hangs, or a
-- machine that is gone. Requests without an answer so far are then asked of another replica, as retry-on says. HAProxy's own
-- way, "on-marked-down shutdown-sessions", does so in the same instant, and ends requests that were just being moved.
core.register_task(function()
  while true do
    core.msleep(500)
    for _, replica in pairs(core.backends.carat.servers) do
      local now = replica:get_stats()
      if now.status:find("^DOWN") and now.lastchg >= 2 and now.scur > 0 then
        core.Warning("ending " .. now.scur .. " requests to " .. now.svname .. ", which hangs")
        replica:shut_sess()
      end
    end
  end
end)
