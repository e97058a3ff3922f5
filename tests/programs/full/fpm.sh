#!/bin/bash
# PHP's FastCGI processes behind nginx, both on Unix sockets in the working directory: pages by several clients at the same time.
# Arguments: those of PHP.
set -eu
here=$PWD
fpm=$(compgen -c php-fpm | sort | tail -1)
nginx=nginx
cat >fpm.conf <<END
[global]
error_log = $here/fpm.log
daemonize = no
[www]
listen = $here/fpm.sock
pm = static
pm.max_children = 2
php_admin_value[max_execution_time] = 0
END
cat >nginx.conf <<END
daemon off;
worker_processes 2;
pid $here/nginx.pid;
error_log $here/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path $here/body;
    fastcgi_temp_path $here/fastcgi;
    proxy_temp_path $here/proxy;
    uwsgi_temp_path $here/uwsgi;
    scgi_temp_path $here/scgi;
    server {
        listen unix:$here/web.sock;
        location / {
            fastcgi_pass unix:$here/fpm.sock;
            fastcgi_param SCRIPT_FILENAME $here/page.php;
            fastcgi_param QUERY_STRING \$query_string;
            fastcgi_read_timeout 900;
            fastcgi_param REQUEST_METHOD \$request_method;
        }
    }
}
END
"$fpm" "$@" -y fpm.conf &
fpm_pid=$!
"$nginx" -p "$here" -e "$here/nginx.log" -c "$here/nginx.conf" &
nginx_pid=$!
trap 'kill $fpm_pid $nginx_pid 2>/dev/null || true' EXIT
for ((i = 0; i < 600; i++)); do
    [[ -S web.sock && -S fpm.sock ]] && break
    sleep 0.1
done
get() { # first, last
    for ((n = $1; n <= $2; n++)); do
        curl -sS --fail --max-time 900 --unix-socket web.sock "http://localhost/?n=$n" || echo "page $n: $?"
    done
}
clients=()
for ((c = 0; c < 3; c++)); do
    get $((c * 10)) $((c * 10 + 2)) >"out.$c" &
    clients+=($!)
done
wait "${clients[@]}"
cat out.0 out.1 out.2
kill -QUIT $nginx_pid
kill -QUIT $fpm_pid
wait $nginx_pid && echo "nginx ended"
wait $fpm_pid && echo "php-fpm ended"
trap - EXIT
