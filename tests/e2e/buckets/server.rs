//! A real server of S3, which keeps its objects in a directory.

use std::fs;

use anyhow::Result;
use hyper_util::rt::TokioIo;
use mayfly_testkit::{Job, Scratch};
use tokio::runtime::Runtime;

const KEY: &str = "own-key";
const SECRET: &str = "own-secret";

/// A server of S3 with a bucket called `data`.
pub(crate) struct Server {
    endpoint: String,
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start(scratch: &Scratch) -> Result<Server> {
        let root = scratch.join("s3");
        fs::create_dir_all(root.join("data"))?;
        let store = s3s_fs::FileSystem::new(&root).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let mut service = s3s::service::S3ServiceBuilder::new(store);
        service.set_auth(s3s::auth::SimpleAuth::from_single(KEY, SECRET));
        let service = service.build().into_shared();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let http = hyper_util::server::conn::auto::Builder::new(
                        hyper_util::rt::TokioExecutor::new(),
                    );
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Ok(Server { endpoint, _runtime: runtime })
    }

    /// A job that knows of it.
    pub(crate) fn known<'a>(&self, job: Job<'a>) -> Job<'a> {
        job.env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
    }
}
